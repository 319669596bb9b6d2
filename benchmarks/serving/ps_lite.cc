// SPDX-License-Identifier: Apache-2.0
// A process of ps-lite: scheduler, server or trainer, as DMLC_ROLE says; started by `sides.ps_lite`.
//
//   ps_lite BYTES    a trainer says "ready", then takes as many steps as each line asks for, as `contest` has it
//
// The same sum and update as everywhere, in one loop; a push is answered once all trainers' pushes are there.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "ps/ps.h"

namespace {

constexpr float kRate = 0.01f;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Store {
  std::vector<float> w;
  std::vector<ps::KVMeta> waiting;
  std::vector<ps::SArray<float>> gradients;

  void operator()(const ps::KVMeta& asked, const ps::KVPairs<float>& data, ps::KVServer<float>* server) {
    if (asked.push) {
      waiting.push_back(asked);
      gradients.push_back(data.vals);
      if (static_cast<int>(waiting.size()) < ps::NumWorkers()) return;
      step();
      for (const auto& one : waiting) server->Response(one);
      waiting.clear();
      gradients.clear();
      return;
    }
    ps::KVPairs<float> answer;
    answer.keys = data.keys;
    answer.vals = ps::SArray<float>(w.data(), w.size());  // not copied
    answer.lens = ps::SArray<int>({static_cast<int>(w.size())});
    server->Response(asked, answer);
  }

  void step() {
    w.resize(gradients[0].size());
    const float *g = gradients[0].data(), *h = gradients.back().data();
    if (gradients.size() == 1) {
      for (size_t i = 0; i < w.size(); ++i) w[i] -= kRate * g[i];
    } else {
      for (size_t i = 0; i < w.size(); ++i) w[i] -= kRate * (g[i] + h[i]);
    }
  }
};

void train(size_t count) {
  ps::KVWorker<float> worker(0, 0);
  ps::SArray<ps::Key> keys({0});
  ps::SArray<float> gradient(count, 1e-3f), values(count, 0.0f);
  ps::SArray<int> lens({static_cast<int>(count)});
  auto step = [&] {
    worker.Wait(worker.ZPush(keys, gradient, lens));
    worker.Wait(worker.ZPull(keys, &values, &lens));
  };
  step();
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::string took;
    const double begun = now();
    for (int left = std::atoi(line.c_str()); left > 0; --left) {
      const double at = now();
      step();
      took += (took.empty() ? "" : ", ") + std::to_string(now() - at);
    }
    std::printf("{\"begun\": %.9f, \"ended\": %.9f, \"took\": [%s]}\n", begun, now(), took.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  const size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) / sizeof(float) : 0;
  ps::Start(0);
  ps::KVServer<float>* server = nullptr;
  if (ps::IsServer()) {
    server = new ps::KVServer<float>(0);
    server->set_request_handle(Store());
  }
  if (ps::IsWorker()) train(count);
  ps::Finalize(0, true);
  delete server;
  return 0;
}
