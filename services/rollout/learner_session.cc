// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/learner_session.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "rpc/tls.h"
#include "services/rollout/local_weights.h"

namespace oxbow::rollout {
namespace {

constexpr int kIoThreads = 4;
constexpr int kPreparationThreads = 8;  // They mostly wait: prompts asked for at once share a call.
constexpr uint64_t kOwnContentBytes = uint64_t{256} << 20;

weights::WeightFollower::Options FollowOptions(const RunSpec& spec, weights::WeightRelay* relay,
                                               weights::JoinBroadcastGroup join_broadcast_group,
                                               const LocalWeights* local_weights) {
  weights::WeightFollower::Options follow;
  follow.endpoints = spec.weight_endpoints;
  follow.epoch = spec.epoch;
  follow.worker_id = spec.worker_id;
  follow.timeout = spec.rpc_timeout;
  // Members with certificates need not trust each other's bytes; in plaintext nobody knows anybody.
  if (rpc::UsesTls()) follow.chunk_check = weights::ChunkCheck::kSha256;
  follow.relay = relay;
  if (local_weights != nullptr) {
    follow.local = [local_weights](const v1::SnapshotManifest& manifest,
                                   weights::Download& download) {
      local_weights->Offer(manifest, download);
    };
  }
  follow.join_broadcast_group = std::move(join_broadcast_group);
  follow.broadcast_device = spec.device.is_cuda() ? "cuda" : "cpu";
  return follow;
}

}  // namespace

LearnerSession::LearnerSession(RunSpec spec, v1::Coordinator::Stub& coordinator,
                               std::unique_ptr<reward::RewardClient> rewards,
                               RolloutMetrics& metrics, weights::FollowMetrics& follow_metrics,
                               const Clock& clock, weights::WeightRelay* relay,
                               weights::JoinBroadcastGroup join_broadcast_group,
                               const LocalWeights* local_weights)
    : spec_(std::move(spec)),
      rewards_(std::move(rewards)),
      link_(spec_, coordinator, *rewards_, metrics, clock,
            [this](const v1::Lease& lease) { Take(lease); }),
      own_content_(kOwnContentBytes),
      conditioning_({.learner = spec_.weight_endpoints.front(),
                     .epoch = spec_.epoch,
                     .worker_id = spec_.worker_id,
                     .learner_silence = spec_.rpc_timeout},
                    relay == nullptr ? own_content_ : relay->content(), metrics, follow_metrics,
                    clock),
      delivery_(spec_, *rewards_, link_, metrics, clock),
      model_(spec_, [this](const std::string& sha256,
                           const weights::Placed& placed) { follower_.Place(sha256, placed); }),
      follower_(FollowOptions(spec_, relay, std::move(join_broadcast_group), local_weights),
                follow_metrics, clock, [this] { link_.leases().Wake(); }),
      pictures_(
          spec_, coordinator, conditioning_,
          [this](const std::string& sha256) { return follower_.Held(sha256); }, clock),
      sampler_({.spec = spec_,
                .link = link_,
                .model = model_,
                .follower = follower_,
                .pictures = pictures_,
                .delivery = delivery_,
                .tasks = tasks_,
                .metrics = metrics,
                .follow_metrics = follow_metrics,
                .clock = clock}) {
  for (const std::string& endpoint : spec_.buffer_endpoints) {
    buffers_.push_back(std::make_unique<buffer::ReplayClient>(endpoint, spec_.rpc_timeout));
  }
  threads_.emplace_back([this] { link_.AwaitRewards(); });
  threads_.emplace_back([this] { sampler_.Run(); });
  threads_.emplace_back([this] { link_.RenewLoop(); });
  WorkOn(tasks_, kIoThreads);
  WorkOn(preparations_, kPreparationThreads);
}

LearnerSession::~LearnerSession() {
  rewards_->Cancel();
  link_.Stop();
  delivery_.Cancel();
  pictures_.Cancel();
  conditioning_.Cancel();
  tasks_.Close();
  preparations_.Close();
  follower_.Stop();
  // These threads use the follower until they end, so it is destroyed after them. Its own threads
  // only wake the board.
  for (std::thread& thread : threads_) thread.join();
}

void LearnerSession::WorkOn(TaskQueue& queue, int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([&queue] {
      while (auto task = queue.Pop()) (*task)();
    });
  }
}

void LearnerSession::Take(v1::Lease lease) {
  const TraceScope scope(link_.TraceOf(lease));
  OXBOW_LOG(Debug) << "lease taken" << Field("group", lease.group_id())
                   << Field("lease", lease.lease_id()) << Field("step", lease.learner_step())
                   << Field("attempt", lease.attempt()) << Field("worker", spec_.worker_id);
  if (!lease.has_head() && !lease.has_pictures()) {
    if (weights::Chunk held = conditioning_.Held(lease); held != nullptr) {
      return link_.leases().Ready({std::move(lease), std::nullopt, std::move(held)});
    }
  }
  preparations_.Push([this, lease = std::move(lease)]() mutable {
    const TraceScope task_scope(link_.TraceOf(lease));
    const uint64_t id = lease.lease_id();
    bool no_head = false;
    absl::StatusOr<ReadyLease> ready = Prepared(std::move(lease), no_head);
    if (ready.ok()) return link_.leases().Ready(*std::move(ready));
    LearnerLink::Outcome outcome = OutcomeOf(ready.status());
    outcome.elsewhere |= no_head;
    link_.Finish(id, outcome);
  });
}

absl::StatusOr<ReadyLease> LearnerSession::Prepared(v1::Lease lease, bool& no_head) {
  if (lease.has_pictures()) return pictures_.Prepare(std::move(lease));
  ReadyLease ready{.head = std::nullopt, .conditioning = conditioning_.Held(lease)};
  if (ready.conditioning == nullptr) {
    OXBOW_ASSIGN_OR_RETURN(ready.conditioning, conditioning_.Fetch(lease));
  }
  if (lease.has_head()) {
    absl::StatusOr<rl::Trajectory> head = ReadHead(lease);
    no_head = !head.ok();
    if (!head.ok()) return Annotate(head.status(), "cannot read the replayed head");
    ready.head = *std::move(head);
  }
  ready.lease = std::move(lease);
  return ready;
}

absl::StatusOr<rl::Trajectory> LearnerSession::ReadHead(const v1::Lease& lease) {
  const v1::Lease::Head& head = lease.head();
  if (head.buffer_shard() >= buffers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no such buffer shard: ", head.buffer_shard()));
  }
  OXBOW_ASSIGN_OR_RETURN(
      v1::ReplayEntry entry,
      buffers_[head.buffer_shard()]->Read(EntryId(head.entry_id()), head.kept_steps(), 1));
  v1::Tensor& latents = *entry.mutable_trajectory()->mutable_latents();
  latents.clear_shape();
  for (const int64_t size : spec_.latent_shape) latents.add_shape(size);
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, rpc::TensorFromProto(latents));
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor latent, io::ToTorch(bytes));
  rl::Trajectory sample;
  sample.latents = latent.to(at::kFloat).unsqueeze(0);
  sample.first_latent = static_cast<int>(head.kept_steps());
  sample.replayed = true;
  sample.entry_id = EntryId(head.entry_id());
  sample.kept_steps = static_cast<int>(head.kept_steps());
  sample.stored_reward = head.stored_reward();
  return sample;
}

}  // namespace oxbow::rollout
