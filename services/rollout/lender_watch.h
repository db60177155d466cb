// SPDX-License-Identifier: Apache-2.0
// The end of a worker that still has the base weights of another process (core/model/lent_base.h)
// when that has ended: CUDA leaves open what the memory holds from then on, and the GPU has no room
// for the next learner's base before the old one is let go.
#pragma once

#include <sys/types.h>

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace oxbow::rollout {

class LenderWatch {
 public:
  // Ends this process with kExitUnavailable if the watch still lives `grace` after the end of
  // `lender`. A worker that is not in the midst of a batch has let go by then. kUnavailable if
  // there is no such process, or the system does not tell when it ends.
  static absl::StatusOr<std::unique_ptr<LenderWatch>> Start(pid_t lender,
                                                            absl::Duration grace = kGrace);
  ~LenderWatch();
  LenderWatch(const LenderWatch&) = delete;
  LenderWatch& operator=(const LenderWatch&) = delete;

 private:
  static constexpr absl::Duration kGrace = absl::Milliseconds(500);

  LenderWatch(Descriptor lender, Descriptor stop, absl::Duration grace);
  void Loop(absl::Duration grace);

  const Descriptor lender_;
  const Descriptor stop_;
  std::thread thread_;
};

}  // namespace oxbow::rollout
