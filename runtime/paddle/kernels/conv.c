/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct convolutions without im2col: float32, two spatial dimensions, one group. `ops.conv.direct` prepares the
 * arguments.
 *
 * Images are stored as lines: each channel of a few images is one line, with zero padding around the rows. In a line,
 * every cell of the kernel has a constant offset from its output place, so that a convolution is a sum of shifted
 * lines:
 *
 *     image      its line at padding 1, pitch 3: rows share the zero between them
 *     a b        0 0 0 0 a b 0 c d 0 0 0 ...
 *     c d        place q (of the window) takes q, q+1, q+2, q+3, .., q+8; places of the last column mean nothing
 *
 * For strides above one, there is a line for each remainder (phase) of rows and columns. No loop checks indices: arrays
 * are padded at the end by the size of a tile. */
#include "tile.h"

/* Number of products that are summed before a tile is stored, so that the lines they read stay in the first-level
 * cache; number of elements of each line that are multiplied at a time, for the same reason. */
enum { SUMMED = 288, STRETCH = 1024 };

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct { int64_t channels, height, width; } shape;
typedef struct { int64_t rows, pitch, length; } room;      /* of an image in a line; elements of a phase */
typedef struct { int64_t stride, padding, phases; } side;  /* row y of phase r is y stride + r - padding */
typedef struct { int64_t high, step_down, top, wide, step, left; } placed;  /* place y is row y step_down + top */

/* The layout of images as lines, and of output places: `ops.conv.lines.Plan`, in its order. */
typedef struct {
    shape image, made;
    room at;
    side down, across;
    placed where;
    int64_t chunk;                                 /* images at a time */
    int64_t line_pitch, column_pitch, place_pitch; /* elements of a line, of a column, of a line of places */
} plan;

typedef struct { float *at; int64_t pitch; } matrix;

void KERNEL(conv_constants)(int64_t *out) {
    const int64_t all[] = {LANES, ROWS, WIDE, LEFT, RIGHT, SUMMED};
    memcpy(out, all, sizeof all);
}

static int64_t floor_divided(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Lay images [first, first + count) out as lines (channels, phases of rows, of columns, images, rows, pitch).
 * What lies around images is left as it is: zero. */
static void fill(const float *images, shape s, int64_t first, int64_t count, int64_t begin_channel, int64_t end_channel,
        room r, side down, side across, matrix lines) {
    for (int64_t channel = begin_channel; channel < end_channel; channel++)
        for (int64_t u = 0; u < down.phases; u++)
            for (int64_t v = 0; v < across.phases; v++) {
                float *line = lines.at + (channel - begin_channel) * lines.pitch + (u * across.phases + v) * r.length;
                /* columns x with 0 <= x * stride + v - padding < width; rows likewise */
                int64_t begin = MAX(0, -floor_divided(v - across.padding, across.stride));
                int64_t end = MIN(r.pitch, floor_divided(s.width - 1 + across.padding - v, across.stride) + 1);
                int64_t top = MAX(0, -floor_divided(u - down.padding, down.stride));
                int64_t bottom = MIN(r.rows, floor_divided(s.height - 1 + down.padding - u, down.stride) + 1);
                if (end <= begin || bottom <= top) continue;
                for (int64_t image = 0; image < count; image++) {
                    const float *source = images + ((first + image) * s.channels + channel) * s.height * s.width
                        + (top * down.stride + u - down.padding) * s.width + begin * across.stride + v - across.padding;
                    float *target = line + (image * r.rows + top) * r.pitch + begin;
                    if (across.stride == 1) {
                        copy_rows(target, r.pitch, source, down.stride * s.width, bottom - top, end - begin);
                        continue;
                    }
                    for (int64_t y = 0; y < bottom - top; y++, target += r.pitch, source += down.stride * s.width)
                        if (across.stride == 2)
                            for (int64_t x = 0; x < end - begin; x++) target[x] = source[2 * x];
                        else
                            for (int64_t x = 0; x < end - begin; x++) target[x] = source[x * across.stride];
                }
            }
}

/* Put the places of `channels` lines (images, rows, pitch) into channels from first_channel on of images
 * [first, first + count). */
static void take(matrix lines, int64_t first, int64_t count, int64_t rows, int64_t pitch, placed p,
        int64_t first_channel, int64_t channels, shape s, float *images) {
    for (int64_t image = 0; image < count; image++)
        for (int64_t channel = 0; channel < channels; channel++) {
            const float *source = lines.at + channel * lines.pitch + image * rows * pitch;
            float *target = images + p.left
                + (((first + image) * s.channels + first_channel + channel) * s.height + p.top) * s.width;
            if (p.step == 1) {
                copy_rows(target, p.step_down * s.width, source, pitch, p.high, p.wide);
                continue;
            }
            for (int64_t y = 0; y < p.high; y++)
                for (int64_t x = 0; x < p.wide; x++)
                    target[y * p.step_down * s.width + x * p.step] = source[y * pitch + x];
        }
}

/* columns[k] (images, high, wide) = lines[offsets[k]] without what lies between rows. */
static void gather(const float *lines, const int64_t *offsets, int64_t total, int64_t images, room r, int64_t high,
        int64_t wide, matrix columns) {
    for (int64_t k = 0; k < total; k++)
        for (int64_t image = 0; image < images; image++)
            copy_rows(columns.at + k * columns.pitch + image * high * wide, wide,
                lines + offsets[k] + image * r.rows * r.pitch, r.pitch, high, wide);
}

CONTRACTED

/* out (blocks ROWS, pitch) = sum of filters (blocks, K, ROWS) lines[offsets (K)], over `length` places. If there is
 * room for columns (SUMMED, places) lines are copied there first, without what lies between rows of the places. */
static void correlate(const float *filters, int64_t blocks, const float *lines, const int64_t *offsets, int64_t total,
        int64_t images, room r, int64_t high, int64_t wide, matrix columns, matrix out) {
    int64_t steps[SUMMED], length = images * (columns.at ? high * wide : r.rows * r.pitch);
    for (int64_t k = 0; k < SUMMED; k++) steps[k] = k * columns.pitch;
    for (int64_t begin = 0; begin < total; begin += SUMMED) {
        int64_t count = MIN(SUMMED, total - begin);
        if (columns.at) gather(lines, offsets + begin, count, images, r, high, wide, columns);
        for (int64_t place = 0; place < length; place += WIDE)
            for (int64_t block = 0; block < blocks; block++)
                multiply(filters + (block * total + begin) * ROWS, (columns.at ? columns.at : lines) + place,
                    columns.at ? steps : offsets + begin, count, out.at + block * ROWS * out.pitch + place, out.pitch,
                    begin > 0);
    }
}

/* out (blocks, K / RIGHT, RIGHT, LEFT) += grads (blocks LEFT, pitch) lines[offsets (K)], over places; K is a multiple
 * of RIGHT. */
static void correlate_lines(matrix grads, int64_t blocks, const float *lines, const int64_t *offsets, int64_t total,
        int64_t images, room r, int64_t high, int64_t wide, matrix columns, float *out) {
    int64_t steps[SUMMED], length = images * (columns.at ? high * wide : r.rows * r.pitch);
    int64_t at_once = columns.at ? SUMMED : total;
    for (int64_t k = 0; k < SUMMED; k++) steps[k] = k * columns.pitch;
    length = (length + LANES - 1) / LANES * LANES;
    for (int64_t first = 0; first < total; first += at_once) {
        int64_t last = MIN(first + at_once, total);
        if (columns.at) gather(lines, offsets + first, last - first, images, r, high, wide, columns);
        for (int64_t begin = 0; begin < length; begin += STRETCH)
            for (int64_t block = 0; block < blocks; block++)
                for (int64_t k = first; k < last; k += RIGHT)
                    dots(grads.at + block * LEFT * grads.pitch + begin, grads.pitch,
                        (columns.at ? columns.at : lines) + begin, columns.at ? steps + k - first : offsets + k,
                        MIN(STRETCH, length - begin), out + (block * total + k) * LEFT);
    }
}

CONTRACTED_END

static void clear(matrix room, int64_t rows) { memset(room.at, 0, sizeof(float) * (size_t)(rows * room.pitch)); }

/* Convolve images [first, last) by filters (blocks, K, ROWS), whose first one makes channel first_channel.
 * lines (channels, line_pitch), columns (SUMMED, column_pitch) or null, and sums (blocks ROWS, place_pitch) are room to
 * work in. */
void KERNEL(conv_convolve)(const plan *p, const float *images, int64_t first, int64_t last, const float *filters,
        int64_t blocks, int64_t first_channel, const int64_t *offsets, int64_t total, float *lines, float *columns,
        float *sums, float *out) {
    matrix into = {lines, p->line_pitch}, apart = {columns, p->column_pitch}, found = {sums, p->place_pitch};
    const placed where = p->where;
    clear(into, p->image.channels);
    if (columns) clear(apart, SUMMED);
    for (int64_t begin = first; begin < last; begin += p->chunk) {
        int64_t count = MIN(p->chunk, last - begin);
        fill(images, p->image, begin, count, 0, p->image.channels, p->at, p->down, p->across, into);
        correlate(filters, blocks, lines, offsets, total, count, p->at, where.high, where.wide, apart, found);
        take(found, begin, count, columns ? where.high : p->at.rows, columns ? where.wide : p->at.pitch, where,
            first_channel, MIN(blocks * ROWS, p->made.channels - first_channel), p->made, out);
    }
}

/* Add the filters' gradient of images [first, last), of channels [begin_channel, end_channel), to out (blocks,
 * K / RIGHT, RIGHT, LEFT); others (blocks LEFT, place_pitch) is room for grads as lines. */
void KERNEL(conv_gradient)(const plan *p, const float *images, const float *grads, int64_t first, int64_t last,
        int64_t begin_channel, int64_t end_channel, const int64_t *offsets, int64_t total, float *lines,
        float *columns, float *others, float *out) {
    const side plain = {1, 0, 1};
    const shape made = p->made;
    const int64_t blocks = (made.channels + LEFT - 1) / LEFT;
    matrix into = {lines, p->line_pitch}, apart = {columns, p->column_pitch}, beside = {others, p->place_pitch};
    clear(into, end_channel - begin_channel);
    if (columns) clear(apart, SUMMED);
    for (int64_t begin = first; begin < last; begin += p->chunk) {
        int64_t count = MIN(p->chunk, last - begin);
        if (begin == first || count < p->chunk) clear(beside, blocks * LEFT); /* not added again */
        fill(images, p->image, begin, count, begin_channel, end_channel, p->at, p->down, p->across, into);
        fill(grads, made, begin, count, 0, made.channels, columns ? (room){made.height, made.width, 0} : p->at, plain,
            plain, beside);
        correlate_lines(beside, blocks, lines, offsets, total, count, p->at, made.height, made.width, apart, out);
    }
}

/* out (F / ROWS, channels cells, ROWS) = filters by blocks, zeros beyond count: cell i of channel c of filter f is
 * number f filter_step + c channel_step + cells[i]. */
void KERNEL(conv_pack)(const float *filters, int64_t count, int64_t filter_step, int64_t channel_step,
        int64_t channels, const int64_t *cells, int64_t many, float *restrict out) {
    for (int64_t first = 0; first < count; first += ROWS)
        for (int64_t channel = 0; channel < channels; channel++)
            for (int64_t i = 0; i < many; i++, out += ROWS) {
                const float *from = filters + first * filter_step + channel * channel_step + cells[i];
                for (int64_t m = 0; m < ROWS; m++) out[m] = first + m < count ? from[m * filter_step] : 0;
            }
}

/* out (F, each) with so many numbers from filter to filter = sum of sums (groups, F / LEFT, K / RIGHT, RIGHT, LEFT),
 * in the order of groups. */
void KERNEL(conv_unpack)(const float *sums, int64_t groups, int64_t filters, int64_t total, int64_t each, float *out,
        int64_t pitch) {
    const int64_t blocks = (filters + LEFT - 1) / LEFT;
    for (int64_t f = 0; f < filters; f++)
        for (int64_t k = 0; k < each; k++) {
            const float *from = sums + (f / LEFT * total + k) * LEFT + f % LEFT;
            float sum = from[0];
            for (int64_t group = 1; group < groups; group++) sum += from[group * blocks * total * LEFT];
            out[f * pitch + k] = sum;
        }
}
