#include "engine/threads/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace troupe::engine {

class ThreadPool::Impl {
 public:
  explicit Impl(int num_threads) {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  void ParallelFor(int64_t count, const std::function<void(int64_t)>& task) {
    if (threads_.empty() || count <= 1) {
      for (int64_t i = 0; i < count; ++i) task(i);
      return;
    }
    next_ = 0;
    {
      absl::MutexLock lock(&mutex_);
      task_ = &task;
      count_ = count;
      busy_ = static_cast<int>(threads_.size());
      ++round_;
    }
    Drain(task, count);
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* busy) { return *busy == 0; }, &busy_));
  }

 private:
  void Drain(const std::function<void(int64_t)>& task, int64_t count) {
    for (int64_t i = next_++; i < count; i = next_++) task(i);
  }

  void Work() {
    uint64_t seen = 0;
    while (true) {
      const std::function<void(int64_t)>* task = nullptr;
      int64_t count = 0;
      {
        absl::MutexLock lock(&mutex_);
        auto wake = [this, &seen] {
          mutex_.AssertReaderHeld();
          return stopping_ || round_ != seen;
        };
        mutex_.Await(absl::Condition(&wake));
        if (stopping_) return;
        seen = round_;
        task = task_;
        count = count_;
      }
      Drain(*task, count);
      absl::MutexLock lock(&mutex_);
      --busy_;
    }
  }

  std::atomic<int64_t> next_{0};
  absl::Mutex mutex_;
  const std::function<void(int64_t)>* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::num_threads() const { return impl_->num_threads(); }
void ThreadPool::ParallelFor(int64_t count, const std::function<void(int64_t)>& task) { impl_->ParallelFor(count, task); }

}  // namespace troupe::engine
