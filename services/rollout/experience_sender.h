// SPDX-License-Identifier: Apache-2.0
// Sends finished groups to a learner rank: a header, with small latents in it or with chunks behind
// it within the sink's byte credit, and one answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/retry.h"
#include "rpc/silence_guard.h"

namespace oxbow::rollout {

class ExperienceSender {
 public:
  // A stream on which nothing moves for `silence_max` is given up.
  ExperienceSender(const std::string& endpoint, absl::Duration silence_max,
                   rpc::RetryPolicy retry = {.backoff_first = absl::Milliseconds(100),
                                             .backoff_max = absl::Seconds(10)});

  // Delivers one group; its latent bytes are inside the message. The answer says whether the group
  // was accepted, a duplicate, fenced or invalid. If the sink is away, busy or silent, the group is
  // sent again; its lease ensures that it counts once. `pause` waits for the given time, and is
  // false when the answer is no longer wanted. Thread-safe.
  absl::StatusOr<v1::InsertResponse::Ack> Send(v1::Group group,
                                               const std::function<bool(absl::Duration)>& pause);

  // A group as it goes over the wire, the same for each try.
  struct WireGroup {
    v1::InsertRequest header;          // The group, with the bytes of its latents if they are few.
    std::vector<std::string> latents;  // By trajectory, for chunks; none if the header has them.
  };

  // Ends the streams in progress and all later ones.
  void Cancel() { guard_.CancelAll(); }

 private:
  absl::StatusOr<v1::InsertResponse::Ack> SendOnce(const WireGroup& wire);

  const std::string endpoint_;
  const absl::Duration silence_max_;
  const rpc::RetryPolicy retry_;
  const std::unique_ptr<v1::ExperienceSink::Stub> stub_;
  rpc::SilenceGuard guard_{Clock::Steady()};
};

}  // namespace oxbow::rollout
