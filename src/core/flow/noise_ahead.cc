// SPDX-License-Identifier: Apache-2.0
#include "core/flow/noise_ahead.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxbow::flow {
namespace {

constexpr size_t kAhead = 2;                    // Steps whose noise is in memory at once.
constexpr int64_t kNumbersOfAThread = 1 << 16;  // In one step; fewer take 2 ms.

}  // namespace

NoiseAhead::NoiseAhead(std::vector<uint32_t> steps, std::vector<int64_t> shape, at::Device device,
                       Draw draw)
    : steps_(std::move(steps)), shape_(std::move(shape)), device_(device), draw_(std::move(draw)) {
  if (c10::multiply_integers(shape_) < kNumbersOfAThread) return;
  while (made_ < std::min(kAhead, steps_.size())) ahead_.push_back(NextStep());
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "noise");
    Run();
  });
}

NoiseAhead::~NoiseAhead() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

// By the caller's thread: memory is torch's.
std::shared_ptr<NoiseAhead::Step> NoiseAhead::NextStep() {
  OXBOW_CHECK(made_ < steps_.size()) << "noise of a step that has none";
  const auto host = at::TensorOptions(at::kCPU).pinned_memory(device_.is_cuda());
  at::Tensor noise = at::empty(shape_, host.dtype(at::kFloat));
  const std::span<float> values(noise.mutable_data_ptr<float>(),
                                static_cast<size_t>(noise.numel()));
  return std::make_shared<Step>(steps_[made_++], std::move(noise), values);
}

// False if stopped.
bool NoiseAhead::Fill(Step& step) {
  const auto rows = static_cast<size_t>(shape_[0]);
  const size_t length = rows == 0 ? 0 : step.values.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return false;
    }
    draw_(step.number, row, step.values.subspan(row * length, length));
  }
  return true;
}

void NoiseAhead::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!ahead_.empty() && !ahead_.back()->drawn);
  };
  for (size_t done = 0; done < steps_.size(); ++done) {
    std::shared_ptr<Step> next;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (stopping_) return;
      next = *std::find_if(ahead_.begin(), ahead_.end(), [](const auto& s) { return !s->drawn; });
    }
    if (!Fill(*next)) return;
    absl::MutexLock lock(&mutex_);
    next->drawn = true;
  }
}

at::Tensor NoiseAhead::Take() {
  std::shared_ptr<Step> step;
  if (!thread_.joinable()) {
    step = NextStep();
    Fill(*step);
  } else {
    std::shared_ptr<Step> later = made_ < steps_.size() ? NextStep() : nullptr;
    const auto drawn = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ahead_.empty() || ahead_.front()->drawn;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&drawn));
    OXBOW_CHECK(!ahead_.empty()) << "noise of a step that has none";
    step = std::move(ahead_.front());
    ahead_.pop_front();
    if (later != nullptr) ahead_.push_back(std::move(later));
  }
  return step->noise.to(device_, /*non_blocking=*/true);
}

}  // namespace oxbow::flow
