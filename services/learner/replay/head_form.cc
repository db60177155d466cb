// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/head_form.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/flow/window.h"
#include "rpc/convert.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

constexpr uint64_t kHeadBytesMax = uint64_t{1} << 40;

}  // namespace

bool HeadForm::HasShape(const v1::Tensor& latents) const {
  const auto& shape = latents.shape();
  return !shape.empty() &&
         std::equal(shape.begin() + 1, shape.end(), latent_shape.begin(), latent_shape.end());
}

std::optional<ReplayedHead> HeadForm::HeadOf(LearnerStep step, const v1::ReplayEntry& entry,
                                             const std::vector<bool>& sde,
                                             const char*& reason) const {
  const v1::Trajectory& stored = entry.trajectory();
  reason = "schedule";
  if (!OfSchedule(entry)) return std::nullopt;
  const flow::LatentSpan span =
      images ? ImageSpan(stored) : HeadSpan(stored, static_cast<int>(kept_steps));
  reason = "no_density";
  if (span.count == 0) return std::nullopt;
  // The latents that are stored have the shape of this run's, and the head is among them.
  reason = "size";
  if (!HasShape(stored.latents())) return std::nullopt;
  const int64_t skipped = span.first - static_cast<int64_t>(stored.first_latent());
  const int64_t count = stored.latents().shape(0);
  const absl::StatusOr<uint64_t> bytes = rpc::DeclaredBytes(stored.latents(), kHeadBytesMax);
  const bool fits =
      bytes.ok() && count > 0 && *bytes == latent_bytes * static_cast<uint64_t>(count);
  if (!fits || skipped < 0 || skipped + span.count > count) return std::nullopt;
  const bool same =
      sde.empty() || std::equal(sde.begin(), sde.end(), stored.sde().begin(), stored.sde().end());
  ReplayedHead head{.entry = EntryId(entry.entry_id()),
                    .prompt = entry.prompt(),
                    .kept_steps = static_cast<uint32_t>(span.end() - 1),
                    .stored_reward = stored.reward(),
                    .age = step.value - std::min(step.value, entry.birth_step()),
                    .uses = entry.uses(),
                    .other_window = !same,
                    .trajectory = stored};
  head.trajectory.set_first_latent(static_cast<uint32_t>(span.first));
  head.trajectory.mutable_latents()->set_shape(0, span.count);
  head.trajectory.mutable_latents()->clear_data();
  return head;
}

bool HeadForm::Fill(v1::ReplayEntry entry, ReplayedHead& head) const {
  const v1::Trajectory& stored = entry.trajectory();
  std::string& read = *entry.mutable_trajectory()->mutable_latents()->mutable_data();
  v1::Tensor& latents = *head.trajectory.mutable_latents();
  const uint64_t begin = latent_bytes * (head.trajectory.first_latent() - stored.first_latent());
  const uint64_t bytes = latent_bytes * static_cast<uint64_t>(latents.shape(0));
  if (begin > read.size() || read.size() - begin < bytes) return false;
  if (bytes == read.size()) {
    latents.set_data(std::move(read));
  } else {
    latents.set_data(read.substr(begin, bytes));
  }
  return true;
}

}  // namespace oxbow::learner
