// SPDX-License-Identifier: Apache-2.0
// A plain hash table from ids to rows of 64 floats and 64 AdaGrad sums, one thread: what a growing table is held against.
//
// Open addressing with linear probing, 16 bytes a bucket, at most half full; rows side by side in huge pages. Ids are
// looked up 16 at a time, so that their misses overlap. Nothing is checked, counted, copied for a checkpoint, or grows;
// equal ids are stepped one after the other instead of being added up first.
//
// Reads lines "lookup|update <distribution> <turn>" and answers each with seconds. The folder given has the workload.
#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

constexpr int WIDTH = 64, BLOCK = 16, LINE_FLOATS = 16;
constexpr float RATE = 0.1f, EPSILON = 1e-6f;

struct Bucket {
  int64_t id;
  uint32_t row, used;
};

template <class T>
T* mapped(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(2);
  madvise(memory, count * sizeof(T), MADV_HUGEPAGE);
  return static_cast<T*>(memory);
}

template <class T>
std::vector<T> content(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<T> values(file.tellg() / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T));
  return values;
}

class Table {
 public:
  explicit Table(size_t rows) {
    size_t buckets = 1;
    while (buckets < 2 * rows) buckets *= 2;
    mask_ = buckets - 1;
    buckets_ = mapped<Bucket>(buckets);
    rows_ = mapped<float>(2 * WIDTH * rows);
  }
  void fetch(int64_t id) const { __builtin_prefetch(buckets_ + (mix(id) & mask_)); }
  float* row(int64_t id) {
    size_t at = mix(id) & mask_;
    while (buckets_[at].used && buckets_[at].id != id) at = (at + 1) & mask_;
    if (!buckets_[at].used) {
      buckets_[at] = {id, static_cast<uint32_t>(count_++), 1};
      for (int j = 0; j < WIDTH; ++j) rows_[2 * WIDTH * size_t(buckets_[at].row) + j] = 0.001f * j;
    }
    return rows_ + 2 * WIDTH * size_t(buckets_[at].row);
  }

 private:
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  Bucket* buckets_;
  float* rows_;
  size_t mask_, count_ = 0;
};

void step(float* __restrict w, const float* __restrict g) {
  float* __restrict s = w + WIDTH;
  for (int j = 0; j < WIDTH; ++j) {
    s[j] += g[j] * g[j];
    w[j] -= RATE * g[j] * (1.0f / std::sqrt(s[j] + EPSILON));
  }
}

template <class Use>
void visit(Table& table, const std::vector<int64_t>& ids, int floats, Use use) {
  float* rows[BLOCK];
  for (size_t start = 0; start < ids.size(); start += BLOCK) {
    const int count = std::min<size_t>(BLOCK, ids.size() - start);
    for (int k = 0; k < count; ++k) table.fetch(ids[start + k]);
    for (int k = 0; k < count; ++k) {
      rows[k] = table.row(ids[start + k]);
      for (int j = 0; j < floats; j += LINE_FLOATS) __builtin_prefetch(rows[k] + j);
    }
    for (int k = 0; k < count; ++k) use(start + k, rows[k]);
  }
}

int main(int, char** argv) {
  const std::string folder = argv[1];
  const auto ids = content<int64_t>(folder + "/ids");
  const auto gradient = content<float>(folder + "/gradient");
  const size_t batch = gradient.size() / WIDTH;
  std::map<std::string, std::vector<int64_t>> positions;
  Table table(ids.size());
  for (int64_t id : ids) table.row(id);
  std::vector<float> out(gradient.size());
  std::cout << "g++ " << __VERSION__ << std::endl;
  std::string what, distribution;
  size_t turn;
  while (std::cin >> what >> distribution >> turn) {
    auto& drawn = positions[distribution];
    if (drawn.empty()) drawn = content<int64_t>(folder + "/" + distribution);
    std::vector<int64_t> asked(batch);
    for (size_t i = 0; i < batch; ++i) asked[i] = ids[drawn[(turn * batch + i) % drawn.size()]];
    const auto start = std::chrono::steady_clock::now();
    if (what == "lookup")
      visit(table, asked, WIDTH, [&](size_t i, float* row) { memcpy(&out[i * WIDTH], row, 4 * WIDTH); });
    else
      visit(table, asked, 2 * WIDTH, [&](size_t i, float* row) { step(row, &gradient[i * WIDTH]); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << took.count() << std::endl;
  }
}
