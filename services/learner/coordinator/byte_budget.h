// A limit on the number of bytes held at once, shared by many holders. Thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace oxbow::learner {

class ByteBudget {
 public:
  // A part of the budget; the destructor gives it back. Movable.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() {
      if (budget_ != nullptr) budget_->Release(bytes_);
    }
    uint64_t bytes() const { return bytes_; }

    // Moves `bytes` of this hold into a new one. Requires bytes <= bytes().
    Hold Split(uint64_t bytes) {
      OXBOW_CHECK(bytes <= bytes_) << bytes << " of " << bytes_;
      bytes_ -= bytes;
      return Hold(budget_, bytes);
    }
    void Merge(Hold other) {
      if (budget_ == nullptr) budget_ = other.budget_;
      bytes_ += std::exchange(other.bytes_, 0);
    }

   private:
    friend class ByteBudget;
    Hold(ByteBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit ByteBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes bytes when that many are free; returns an empty hold if they are not free within
  // `timeout`. Requires bytes <= bytes_max. The hold must not outlive the budget.
  Hold Take(uint64_t bytes, absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return used_ + bytes <= bytes_max_;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&free), timeout)) return {};
    used_ += bytes;
    return Hold(this, bytes);
  }

  uint64_t used() const {
    absl::MutexLock lock(&mutex_);
    return used_;
  }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  void Release(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    used_ -= bytes;
  }

  const uint64_t bytes_max_;
  mutable absl::Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace oxbow::learner
