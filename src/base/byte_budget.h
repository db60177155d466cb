// SPDX-License-Identifier: Apache-2.0
// A limit on the number of bytes held at once, shared by many holders. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"

namespace oxbow {

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

  // A place in the line for bytes: first come, first served. The destructor leaves the line.
  class Place {
   public:
    // `granted` is called once, when the bytes are taken, perhaps before this returns, and with the
    // budget locked: it only wakes somebody. Requires bytes <= bytes_max.
    Place(ByteBudget& budget, uint64_t bytes, std::function<void()> granted)
        : budget_(budget), bytes_(bytes), granted_(std::move(granted)) {
      OXBOW_CHECK(bytes <= budget.bytes_max_) << bytes << " of " << budget.bytes_max_;
      absl::MutexLock lock(&budget_.mutex_);
      budget_.line_.push_back(this);
      budget_.Serve();
    }
    ~Place() {
      absl::MutexLock lock(&budget_.mutex_);
      if (!served_ && std::erase(budget_.line_, this) > 0) budget_.Serve();
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Whether the bytes are taken; then they are in `hold`.
    bool Take(Hold& hold) {
      Hold taken;
      {
        absl::MutexLock lock(&budget_.mutex_);
        if (!served_) return false;
        taken = std::move(taken_);
      }
      hold.Merge(std::move(taken));
      return true;
    }

   private:
    friend class ByteBudget;
    ByteBudget& budget_;
    const uint64_t bytes_;
    const std::function<void()> granted_;
    bool served_ = false;
    Hold taken_;  // Destroyed after the destructor's lock is released.
  };

  // The bytes, or none where they are not free now. Does not wait in the line.
  std::optional<Hold> TryTake(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (bytes > bytes_max_ - used_) return std::nullopt;
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
    Serve();
  }

  void Serve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!line_.empty() && used_ + line_.front()->bytes_ <= bytes_max_) {
      Place& place = *line_.front();
      line_.pop_front();
      used_ += place.bytes_;
      place.taken_ = Hold(this, place.bytes_);
      place.served_ = true;
      place.granted_();
    }
  }

  const uint64_t bytes_max_;
  mutable absl::Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Place*> line_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow
