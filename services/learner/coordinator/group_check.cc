// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/group_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/flow/window.h"
#include "io/picture_file.h"
#include "io/tensor_bytes.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// A number is finite if its exponent bits are not all ones.
template <typename Word>
bool AllFinite(const std::string& bytes, Word exponent) {
  Word worst = 0;
  for (size_t i = 0; i + sizeof(Word) <= bytes.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + i, sizeof(Word));
    worst |= (word & exponent) == exponent ? 1 : 0;
  }
  return worst == 0;
}

absl::Status CheckLatents(const v1::Trajectory& trajectory, const GroupRules& rules) {
  const v1::Tensor& latents = trajectory.latents();
  if (trajectory.first_latent() > static_cast<uint32_t>(rules.steps())) {
    return Invalid("first_latent is beyond step T: ", trajectory.first_latent());
  }
  const int first = static_cast<int>(trajectory.first_latent());
  const bool to_the_end = rules.sent == flow::SentLatents::kToTheEnd;
  if (latents.shape_size() == 0 && trajectory.replayed() && !to_the_end)
    return absl::OkStatus();  // Tail not kept.
  if (latents.dtype() != rules.storage) {
    return Invalid("latents have dtype ", latents.dtype(), ", the run stores ", rules.storage);
  }
  const bool rank_fits = latents.shape_size() == static_cast<int>(rules.latent_shape.size()) + 1;
  bool fits = rank_fits && latents.shape(0) >= 1 && latents.shape(0) <= rules.steps() + 1 - first;
  for (int i = 1; fits && i < latents.shape_size(); ++i) {
    fits = latents.shape(i) == rules.latent_shape[static_cast<size_t>(i - 1)];
  }
  if (!fits) {
    return Invalid("latents have shape [", absl::StrJoin(latents.shape(), ", "),
                   "], wanted [at most ", rules.steps() + 1 - first, ", ",
                   absl::StrJoin(rules.latent_shape, ", "), "]");
  }
  if (trajectory.replayed() && !to_the_end) return absl::OkStatus();
  const int end = first + static_cast<int>(latents.shape(0));
  const flow::LatentSpan needed =
      flow::SentSpan(rules.sent, {trajectory.sde().begin(), trajectory.sde().end()});
  // A replayed sample brings its tail alone.
  if ((first > needed.first && !trajectory.replayed()) || end < needed.end()) {
    return Invalid("holds x_", first, " to x_", end - 1, ", training needs x_", needed.first,
                   " to x_", needed.end() - 1);
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const v1::Trajectory& trajectory, const GroupRules& rules) {
  const int steps = rules.steps();
  if (trajectory.log_prob_size() != steps || trajectory.sde_size() != steps ||
      trajectory.behaviour_version_size() != steps) {
    return Invalid("per-step lists have ", trajectory.log_prob_size(), ", ", trajectory.sde_size(),
                   " and ", trajectory.behaviour_version_size(), " items, the run has ", steps,
                   " steps");
  }
  const int first = trajectory.replayed() ? static_cast<int>(trajectory.kept_steps()) : 0;
  for (int i = first; i < steps; ++i) {
    if (!std::isfinite(trajectory.log_prob(i))) {
      return Invalid("log-prob of step ", i, " is not finite");
    }
    if (trajectory.sde(i) && !rules.sde[static_cast<size_t>(i)]) {
      return Invalid("step ", i, " is stochastic, other than in the run");
    }
    const uint64_t before = trajectory.behaviour_version(std::max(first, i - 1));
    const uint64_t version = trajectory.behaviour_version(i);
    if (version < before || (version > before && !rules.in_flight_updates)) {
      return Invalid("weights changed at step ", i, " from version ", before, " to ", version);
    }
  }
  return absl::OkStatus();
}

// A fresh member takes exactly the window's steps stochastically; a regenerated tail takes those of
// them that it has, or none.
absl::Status CheckWindow(const v1::Trajectory& trajectory, const std::vector<bool>& window) {
  const int first = trajectory.replayed() ? static_cast<int>(trajectory.kept_steps()) : 0;
  for (int i = first; i < trajectory.sde_size(); ++i) {
    const bool wanted = window[static_cast<size_t>(i)];
    if (trajectory.sde(i) == wanted || (trajectory.replayed() && !trajectory.sde(i))) continue;
    return Invalid("step ", i, trajectory.sde(i) ? " is" : " is not",
                   " stochastic, other than its lease asked for");
  }
  return absl::OkStatus();
}

absl::Status CheckTrajectory(const v1::Trajectory& trajectory, const GroupRules& rules) {
  if (trajectory.sample() >= rules.group_size) {
    return Invalid("sample ", trajectory.sample(), " of a group of ", rules.group_size);
  }
  if (trajectory.schedule_id() != rules.schedule_id)
    return Invalid("was sampled with another schedule");
  if (trajectory.replayed() && trajectory.kept_steps() > static_cast<uint32_t>(rules.steps())) {
    return Invalid("keeps ", trajectory.kept_steps(), " steps");
  }
  OXBOW_RETURN_IF_ERROR(CheckSteps(trajectory, rules));
  OXBOW_RETURN_IF_ERROR(CheckLatents(trajectory, rules));
  if (trajectory.reward_failed()) return absl::OkStatus();
  if (!std::isfinite(trajectory.reward())) return Invalid("reward is not finite");
  for (const v1::NamedValue& reward : trajectory.rewards()) {
    if (!std::isfinite(reward.value())) {
      return Invalid("reward is not finite: ", reward.name());
    }
  }
  return absl::OkStatus();
}

}  // namespace

void PublishedVersions::Add(PolicyVersion version, LearnerStep committed) {
  absl::MutexLock lock(&mutex_);
  committed_[version] = committed;
  while (committed_.size() > staleness_max_ + 4) committed_.erase(committed_.begin());
}

std::optional<LearnerStep> PublishedVersions::StepOf(PolicyVersion version) const {
  absl::MutexLock lock(&mutex_);
  const auto found = committed_.find(version);
  if (found == committed_.end()) return std::nullopt;
  return found->second;
}

bool PublishedVersions::Serves(PolicyVersion version, LearnerStep step) const {
  const std::optional<LearnerStep> committed = StepOf(version);
  return committed.has_value() && step.value <= committed->value + staleness_max_;
}

PolicyVersion PublishedVersions::OldestFor(LearnerStep step) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [version, committed] : committed_) {
    if (step.value <= committed.value + staleness_max_) return version;
  }
  return committed_.empty() ? PolicyVersion(0) : committed_.rbegin()->first;
}

PolicyVersion PublishedVersions::newest() const {
  absl::MutexLock lock(&mutex_);
  return committed_.empty() ? PolicyVersion(0) : committed_.rbegin()->first;
}

uint64_t GroupRules::LatentBytes() const {
  const absl::StatusOr<io::DType> dtype = rpc::DTypeFromProto(storage);
  uint64_t bytes = dtype.ok() ? io::WidthOf(*dtype) : 0;
  for (const int64_t size : latent_shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

uint64_t GroupRules::GroupBytesMax() const {
  const int latents = latents_max > 0 ? latents_max : steps() + 1;
  return LatentBytes() * static_cast<uint64_t>(latents) * group_size;
}

absl::Status CheckHeader(const v1::Group& group, const GroupRules& rules) {
  if (group.trajectories_size() == 0 ||
      group.trajectories_size() > static_cast<int>(rules.group_size)) {
    return Invalid("group has ", group.trajectories_size(), " trajectories, wanted 1 to ",
                   rules.group_size);
  }
  std::set<uint32_t> samples;
  uint64_t pictures = 0;
  for (int i = 0; i < group.trajectories_size(); ++i) {
    const v1::Trajectory& trajectory = group.trajectories(i);
    absl::Status status = CheckTrajectory(trajectory, rules);
    if (status.ok() && !samples.insert(trajectory.sample()).second) {
      status = Invalid("sample index repeats: ", trajectory.sample());
    }
    pictures += trajectory.picture().size();
    if (status.ok() && pictures > io::kPreviewBytesMax) {
      status = Invalid("pictures of the group have more bytes than ", io::kPreviewBytesMax, ": ",
                       pictures);
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("trajectory ", i));
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const v1::Group& group, const PlannedGroup& planned,
                        const PublishedVersions& published, const GroupRules& rules) {
  OXBOW_RETURN_IF_ERROR(CheckHeader(group, rules));
  if (group.prompt().id() != planned.prompt.id()) return Invalid("group is of another prompt");
  for (int i = 0; i < group.trajectories_size(); ++i) {
    const v1::Trajectory& trajectory = group.trajectories(i);
    const std::string place = absl::StrCat("trajectory ", i, ": ");
    OXBOW_RETURN_IF_ERROR(
        Annotate(CheckWindow(trajectory, planned.sde.empty() ? rules.sde : planned.sde),
                 absl::StrCat("trajectory ", i)));
    if (trajectory.replayed()) {
      const auto* mixed = planned.As<MixedGroup>();
      if (mixed == nullptr || trajectory.entry_id() != mixed->head.entry.value ||
          trajectory.kept_steps() != mixed->head.kept_steps) {
        return Invalid(place, "replays another entry than the lease names");
      }
      if (trajectory.latents().shape_size() > 0 &&
          trajectory.first_latent() != trajectory.kept_steps()) {
        return Invalid(place, "tail does not start at x_", trajectory.kept_steps());
      }
    }
  }
  for (const PolicyVersion version : BehaviourVersions(group)) {
    if (published.Serves(version, planned.step)) continue;
    return Invalid("sampled with version ", version.value,
                   ", which is not published or beyond the staleness budget");
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const v1::Group& group, const GroupRules& rules) {
  const uint16_t exponent = rules.storage == v1::DTYPE_F16 ? 0x7c00 : 0x7f80;
  for (int i = 0; i < group.trajectories_size(); ++i) {
    const std::string& bytes = group.trajectories(i).latents().data();
    if (!(rules.storage == v1::DTYPE_F32 ? AllFinite<uint32_t>(bytes, 0x7f800000)
                                         : AllFinite<uint16_t>(bytes, exponent)))
      return Invalid("trajectory ", i, ": latents are not finite");
  }
  return absl::OkStatus();
}

uint64_t UnscoredIn(const v1::Group& group) {
  return static_cast<uint64_t>(
      std::count_if(group.trajectories().begin(), group.trajectories().end(),
                    [](const v1::Trajectory& sample) { return sample.reward_failed(); }));
}

std::vector<PolicyVersion> BehaviourVersions(const v1::Group& group) {
  std::set<uint64_t> versions;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    const auto& all = trajectory.behaviour_version();
    const uint32_t first = trajectory.replayed() ? trajectory.kept_steps() : 0;
    if (first < static_cast<uint32_t>(all.size())) versions.insert(all.begin() + first, all.end());
  }
  return std::vector<PolicyVersion>(versions.begin(), versions.end());
}

}  // namespace oxbow::learner
