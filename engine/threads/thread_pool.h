/// The one pool of compute threads of a worker; deals out tiles whose results do not depend on who computes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace troupe::engine {

/// Runs `task(i)` for every i in [0, count), the calling thread among the workers.
///
/// Threads  one ParallelFor at a time; tasks must not call ParallelFor.
class ThreadPool {
 public:
  /// `num_threads` counts the caller: 1 starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  void ParallelFor(int64_t count, const std::function<void(int64_t)>& task);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::engine
