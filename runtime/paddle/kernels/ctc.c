/* SPDX-License-Identifier: Apache-2.0
 *
 * Connectionist temporal classification (CTC) of one batch, float32 in and out; `ops.loss.ctc` has the numpy form, with
 * logarithms. Here probabilities are float64, scaled to a sum of 1 at each time step, so that no logarithm per state is
 * needed. If this would lose precision, or if an input is NaN or infinite, the caller must use the numpy form. */
#include "exponential.h"
#include "mathematics.h"

OLDEST(exp);
OLDEST(log);

enum { APART = 16 }; /* number of separate sums, so that they are vectorized */
static const double LEAST = 1e-100;

/* Write the softmax of x (n) to out; return ln of the sum of e^x, or NaN if x contains NaN or +infinity. */
static double softmax(const float *restrict x, int64_t n, float *restrict out) {
    float most[APART];
    double sums[APART] = {0}, sum = 0;
    for (int k = 0; k < APART; k++) most[k] = x[0];
    int64_t j = 0;
    for (; j + APART <= n; j += APART)
        for (int k = 0; k < APART; k++) most[k] = x[j + k] > most[k] ? x[j + k] : most[k];
    for (; j < n; j++) most[0] = x[j] > most[0] ? x[j] : most[0];
    for (int k = 1; k < APART; k++) most[0] = most[k] > most[0] ? most[k] : most[0];
    for (j = 0; j < n; j += LANES) put(out + j, exponential(part(x + j, n - j) - all(most[0])), n - j);
    for (j = 0; j + APART <= n; j += APART)
        for (int k = 0; k < APART; k++) sums[k] += out[j + k];
    for (; j < n; j++) sums[0] += out[j];
    for (int k = 0; k < APART; k++) sum += sums[k];
    const float share = (float)(1.0 / sum);
    for (j = 0; j < n; j++) out[j] *= share;
    return most[0] + log(sum);
}

/* Scale x (n) to a sum of 1; return the sum. */
static double scale(double *x, int64_t n) {
    double sum = 0;
    for (int64_t s = 0; s < n; s++) sum += x[s];
    for (int64_t s = 0; s < n; s++) x[s] /= sum;
    return sum;
}

/* Compute the gradient (times, classes) and cost of one sequence of at least one time step, with labels that fit;
 * return 0 if the numpy form must be used. chances and ahead are work space (times, states), back for 2 * states. */
static int sequence(const float *x, int64_t times, int64_t classes, const int64_t *labels, int64_t count,
                    int64_t blank, double *chances, double *ahead, double *back, float *grad, double *cost) {
    const int64_t states = 2 * count + 1;
    double total = 0;
    for (int64_t t = 0; t < times; t++) {
        const float *row = x + t * classes;
        double *y = chances + t * states, *now = ahead + t * states, most = row[blank];
        const double *past = now - states, log_sum = softmax(row, classes, grad + t * classes);
        for (int64_t k = 0; k < count; k++) most = row[labels[k]] > most ? row[labels[k]] : most;
        const double silent = exp(row[blank] - most);
        for (int64_t k = 0; k < count; k++) {
            y[2 * k] = silent;
            y[2 * k + 1] = exp(row[labels[k]] - most);
        }
        y[2 * count] = silent;
        for (int64_t s = 0; s < states; s++) {
            double come = t ? past[s] + (s ? past[s - 1] : 0) : s < 2;
            if (t && s > 1 && s % 2 && labels[s / 2] != labels[s / 2 - 1]) come += past[s - 2];
            now[s] = come * y[s];
        }
        const double found = scale(now, states);
        total += log(found) + (most - log_sum);
        if (!(found > LEAST) || !isfinite(total)) return 0;
    }
    const double *last = ahead + (times - 1) * states;
    const double ending = last[states - 1] + (count ? last[states - 2] : 0);
    if (!(ending > LEAST)) return 0;
    *cost = -(total + log(ending));
    for (int64_t t = times - 1; t >= 0; t--) {
        const double *now = ahead + t * states, *y = chances + t * states;
        double *going = back + t % 2 * states, *after = back + (t + 1) % 2 * states, both = 0;
        for (int64_t s = 0; s < states; s++) {
            if (t == times - 1) {
                going[s] = s >= states - 2;
                continue;
            }
            going[s] = after[s] + (s + 1 < states ? after[s + 1] : 0);
            if (s + 2 < states && s % 2 && labels[s / 2] != labels[s / 2 + 1]) going[s] += after[s + 2];
        }
        if (!(scale(going, states) > LEAST)) return 0;
        for (int64_t s = 0; s < states; s++) both += now[s] * going[s];
        if (!(both > LEAST)) return 0;
        for (int64_t s = 0; s < states; s++) {
            float *place = grad + t * classes + (s % 2 ? labels[s / 2] : blank);
            *place -= (float)(now[s] * going[s] / both);
            going[s] *= y[s];
        }
    }
    return 1;
}

/* Gradients (rows, classes) and costs (n) of logits (rows, classes), sequences at offsets (n + 1), labels at
 * label_offsets (n + 1). Labels that do not fit cost nothing. room has 2 times states + 2 states numbers of the largest
 * sequence. Returns 0 if the plain form has to do it. */
int KERNEL(ctc)(const float *logits, int64_t classes, const int64_t *offsets, const int64_t *labels,
                const int64_t *label_offsets, int64_t n, int64_t blank, double *room, float *grads, float *costs) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t times = offsets[i + 1] - offsets[i], count = label_offsets[i + 1] - label_offsets[i];
        const int64_t *mine = labels + label_offsets[i], states = 2 * count + 1;
        float *grad = grads + offsets[i] * classes;
        int64_t needed = count;
        double cost = 0;
        for (int64_t k = 1; k < count; k++) needed += mine[k] == mine[k - 1];
        if (times && needed <= times) {
            double *back = room + 2 * times * states;
            if (!sequence(logits + offsets[i] * classes, times, classes, mine, count, blank, room,
                          room + times * states, back, grad, &cost))
                return 0;
        } else
            memset(grad, 0, sizeof(float) * (size_t)(times * classes));
        costs[i] = (float)cost;
    }
    return 1;
}
