// A parallel loop that hands out indices and carries the first failure to the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ralm {

// Calls make_worker() once a thread and the worker with every index in [0, count), in ascending
// order as threads come free.
template <typename MakeWorker>
void parallel_for(std::size_t count, unsigned num_threads, const MakeWorker& make_worker) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto loop = [&] {
    try {
      auto worker = make_worker();
      for (std::size_t i = next++; i < count; i = next++) worker(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  const std::size_t num_workers =
      std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(count, 1));
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < num_workers; ++i) threads.emplace_back(loop);
  loop();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ralm
