// Sends finished groups to a learner rank: header, chunks within the sink's byte credit, one
// answer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"

namespace oxbow::rollout {

class ExperienceSender {
 public:
  ExperienceSender(const std::string& endpoint, absl::Duration timeout);

  // Delivers one group; its latent bytes are inside the message. The answer says whether the group
  // was accepted, a duplicate, fenced or invalid. After a lost connection the group is sent again;
  // its lease ensures that it counts once. Thread-safe.
  absl::StatusOr<v1::InsertResponse::Ack> Send(const v1::Group& group) const;

 private:
  absl::StatusOr<v1::InsertResponse::Ack> SendOnce(const v1::Group& group) const;

  const std::string endpoint_;
  const absl::Duration timeout_;
  const std::unique_ptr<v1::ExperienceSink::Stub> stub_;
};

}  // namespace oxbow::rollout
