// SPDX-License-Identifier: Apache-2.0
// For any calls of other ranks: rank 0 admits each rank of this learner once, hands on only groups
// within their byte limit, and gives up at most once.
#include <list>
#include <memory>

#include "base/check.h"
#include "services/learner/ranks/rank_leader.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/served_stream.h"

namespace oxbow::learner {
namespace {

constexpr int kRanks = 3;
constexpr uint64_t kGroupBytes = 64;

enum Call : uint8_t { kJoin, kJoin2, kJoin3, kAccept, kHangUp, kSave, kCalls };
constexpr int kJoins = 3;

// Accepts what comes, within the limits that rank 0 promises.
class Results final : public ResultReceiver {
 public:
  v1::InsertOutcome Submit(ReceivedGroup received, std::string& error) override {
    uint64_t bytes = 0;
    for (const v1::Trajectory& trajectory : received.group.trajectories()) {
      bytes += trajectory.latents().data().size();
    }
    OXBOW_CHECK(bytes <= kGroupBytes) << bytes;
    error = bytes == 0 ? "empty" : "";
    return bytes % 2 == 0 ? v1::INSERT_OUTCOME_ACCEPTED : v1::INSERT_OUTCOME_UNSPECIFIED;
  }
  void Refuse(LeaseId, const std::string&, const std::string&) override {}
};

class Leader {
 public:
  Leader()
      : leader_({.ranks = kRanks,
                 .timeout = absl::InfiniteDuration(),
                 .group_bytes_max = kGroupBytes,
                 .threads = 0},
                clock_, results_, [this](const absl::Status&) { ++lost_; }) {}
  ~Leader() {
    for (auto& join : joins_) join.reset();
    accept_.reset();
    OXBOW_CHECK(lost_ <= 1) << lost_;
  }

  void Do(const fuzz::CallStep& step) {
    if (step.call < kJoins) {
      SendJoin(step);
    } else if (step.call == kAccept) {
      SendAccept(step);
    } else if (step.call == kSave) {
      leader_.AnnounceSave(step.message.size());
    } else {
      HangUp(step.message.empty() ? 0 : static_cast<uint8_t>(step.message[0]));
    }
    for (auto& join : joins_) {
      if (join != nullptr) join->ServeWritten();
    }
    v1::StatusResponse status;
    leader_.FillStatus(status);
    OXBOW_CHECK(status.ranks_size() < kRanks) << status.ranks_size();
    for (const v1::RankStatus& rank : status.ranks()) {
      OXBOW_CHECK(rank.rank() > 0 && rank.rank() < kRanks) << rank.rank();
    }
  }

 private:
  using Join = fuzz::ServedStream<v1::RankReport, v1::RankCommand>;
  using Accept = fuzz::ServedStream<v1::InsertRequest, v1::InsertResponse>;

  void SendJoin(const fuzz::CallStep& step) {
    std::unique_ptr<Join>& join = joins_[step.call];
    if (join == nullptr) {
      auto* reactor = RankLeader::JoinStream::Start(
          contexts_.emplace_back(), leader_.streams(),
          [this](RankLeader::JoinStream& stream) { return leader_.Join(stream); }, std::nullopt);
      join = std::make_unique<Join>(reactor, fuzz::RunnerOf(leader_.streams()),
                                    [](const v1::RankCommand&) {});
    }
    Send(step, join);
  }

  void SendAccept(const fuzz::CallStep& step) {
    if (accept_ == nullptr) {
      auto* reactor = RankLeader::AcceptStream::Start(
          contexts_.emplace_back(), leader_.streams(),
          [this](RankLeader::AcceptStream& stream) { return leader_.Accept(stream); },
          std::nullopt);
      accept_ = std::make_unique<Accept>(reactor, fuzz::RunnerOf(leader_.streams()),
                                         [](const v1::InsertResponse&) {});
    }
    Send(step, accept_);
  }

  template <typename Stream>
  static void Send(const fuzz::CallStep& step, std::unique_ptr<Stream>& stream) {
    stream->Send(step.message);
    if (stream->ended() || stream->status().has_value()) stream.reset();
  }

  void HangUp(uint8_t which) {
    const bool cancelled = (which & 4) != 0;
    if ((which & 3) < kJoins) {
      if (joins_[which & 3] != nullptr) joins_[which & 3]->End(cancelled);
      joins_[which & 3].reset();
    } else {
      if (accept_ != nullptr) accept_->End(cancelled);
      accept_.reset();
    }
  }

  FakeClock clock_;
  Results results_;
  int lost_ = 0;
  std::list<grpc::CallbackServerContext> contexts_;
  RankLeader leader_;
  std::unique_ptr<Join> joins_[kJoins];
  std::unique_ptr<Accept> accept_;
};

}  // namespace
}  // namespace oxbow::learner

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::RankReport::default_instance(),
          &v1::RankReport::default_instance(),
          &v1::RankReport::default_instance(),
          &v1::InsertRequest::default_instance(),
          nullptr,
          nullptr};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  learner::Leader leader;
  for (const fuzz::CallStep& step : fuzz::Script(data, size, learner::kCalls)) leader.Do(step);
  return 0;
}
