// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/parallel/c10d_ranks.h"
#include "core/parallel/network_address.h"
#include "core/parallel/ranks.h"
#include "services/weights/broadcast_group.h"

namespace oxbow::weights {
namespace {

constexpr int kLearner = 0;

class RanksBroadcastGroup final : public BroadcastGroup {
 public:
  RanksBroadcastGroup(std::unique_ptr<parallel::Ranks> ranks, at::Device device)
      : ranks_(std::move(ranks)), device_(device) {
    if (device_.is_cpu()) return;
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  }

  absl::Status Broadcast(std::string& text) override {
    const c10::OptionalStreamGuard guard(stream_);
    return ranks_->BroadcastBytes(text, kLearner);
  }

  std::unique_ptr<Transfer> Start(std::span<char> bytes,
                                  std::shared_ptr<const void> owner) override {
    const c10::OptionalStreamGuard guard(stream_);
    const at::Tensor host = at::from_blob(
        bytes.data(), {static_cast<int64_t>(bytes.size())}, [owner = std::move(owner)](void*) {},
        at::kByte);
    if (device_.is_cpu()) return std::make_unique<InTransfer>(*this, host, host);
    const at::Tensor staged = at::empty(host.sizes(), host.options().device(device_));
    if (ranks_->rank() == kLearner) staged.copy_(host);
    return std::make_unique<InTransfer>(*this, host, staged);
  }

  absl::Status Barrier() override {
    const c10::OptionalStreamGuard guard(stream_);
    return ranks_->Barrier();
  }

  void Abort(const std::string& reason) override { ranks_->Abort(absl::AbortedError(reason)); }

 private:
  class InTransfer final : public Transfer {
   public:
    InTransfer(RanksBroadcastGroup& broadcast_group, at::Tensor host, const at::Tensor& travelling)
        : group_(broadcast_group),
          host_(std::move(host)),
          travelling_(travelling),
          pending_(broadcast_group.ranks_->StartBroadcast(travelling, kLearner)) {}

    absl::Status Wait() override {
      const c10::OptionalStreamGuard guard(group_.stream_);
      OXBOW_RETURN_IF_ERROR(pending_->Wait());
      const bool staged = !group_.device_.is_cpu();
      if (staged && group_.ranks_->rank() != kLearner) host_.copy_(travelling_);
      return absl::OkStatus();
    }

   private:
    RanksBroadcastGroup& group_;
    const at::Tensor host_;
    const at::Tensor travelling_;
    const std::unique_ptr<parallel::Pending> pending_;
  };

  const std::unique_ptr<parallel::Ranks> ranks_;
  const at::Device device_;
  std::optional<c10::Stream> stream_;  // None on CPU.
};

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

absl::StatusOr<parallel::JoinOptions> PlaceAmongRanks(const BroadcastPlace& place) {
  parallel::JoinOptions options{.rank = place.rank, .size = place.size};
  if (place.rank == kLearner) {
    // The address of this machine that the workers' network leads to.
    OXBOW_ASSIGN_OR_RETURN(options.address,
                           parallel::LocalAddressTowards(WithoutBrackets(place.address)));
    const bool colons = options.address.find(':') != std::string::npos;
    const std::string host = colons ? absl::StrCat("[", options.address, "]") : options.address;
    options.on_listening = [tell = place.on_listening, host](int port) {
      if (tell) tell(absl::StrCat(host, ":", port));
    };
    return options;
  }
  const size_t colon = place.address.rfind(':');
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(place.address.substr(colon + 1), &options.port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a broadcast group at no address: ", place.address));
  }
  options.address = WithoutBrackets(place.address.substr(0, colon));
  return options;
}

}  // namespace

JoinBroadcastGroup JoinOverRanks(RanksBroadcastGroupOptions given) {
  return [given](const BroadcastPlace& place) -> absl::StatusOr<std::unique_ptr<BroadcastGroup>> {
    OXBOW_ASSIGN_OR_RETURN(parallel::JoinOptions options, PlaceAmongRanks(place));
    options.restart = static_cast<int>(place.broadcast_group);
    // "cuda" alone is the first one.
    const std::string gpu = given.device == "cuda" ? "cuda:0" : given.device;
    options.device = place.device == "cpu" ? "cpu" : gpu;
    options.join_timeout = given.join_within;
    options.operation_timeout = given.silence;
    options.cancelled = place.cancelled;
    options.process_goes_on = true;
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<parallel::Ranks> ranks, parallel::JoinRanks(options));
    return std::make_unique<RanksBroadcastGroup>(std::move(ranks), at::Device(options.device));
  };
}

}  // namespace oxbow::weights
