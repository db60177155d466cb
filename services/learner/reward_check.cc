// SPDX-License-Identifier: Apache-2.0
#include "services/learner/reward_check.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/image_decoder.h"

namespace oxbow::learner {
namespace {

// The frames of such a latent of zeros.
std::vector<Image8> GreyOf(const RunSetup& setup, std::vector<int64_t> latent_shape) {
  const at::NoGradGuard no_grad;
  latent_shape.insert(latent_shape.begin(), 1);
  const at::Tensor latent =
      at::zeros(latent_shape,
                at::TensorOptions(at::kFloat).device(at::Device(setup.config.model().device())));
  return model::FramesOf(setup.model.decoder->Decode(latent).cpu(), 0);
}

}  // namespace

absl::Status CheckRewards(reward::RewardClient& rewards, const std::vector<v1::Prompt>& prompts,
                          const std::vector<Image8>& frames,
                          const std::function<void(const std::string&)>& says) {
  absl::Status status = rewards.AwaitDescription(says);
  for (size_t i = 0; status.ok() && i < std::min(kPromptsChecked, prompts.size()); ++i) {
    const auto scores = rewards.ScoreMedia(prompts[i].text(), prompts[i].metadata_json(), {frames},
                                           {.waits = true, .says = says});
    if (scores[0].ok()) return absl::OkStatus();
    if (!reward::IsUnscorable(scores[0].status())) return absl::OkStatus();  // Cancelled.
    if (i + 1 < std::min(kPromptsChecked, prompts.size())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a reward cannot score a grey ", frames.size() > 1 ? "video" : "image",
                     ", tried with ", i + 1, " prompts; correct it and start again; it says: ",
                     std::string(scores[0].status().message())));
  }
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

absl::Status TryRewards(reward::RewardClient& rewards, const RunSetup& setup, RunProgress& progress,
                        const std::function<void(const std::string&)>& says) {
  const std::vector<v1::Prompt>& prompts = setup.held_out.empty() ? setup.train : setup.held_out;
  const auto try_size = [&](const std::vector<int64_t>& latent_shape) {
    const std::vector<Image8> grey = GreyOf(setup, latent_shape);
    progress.Enter("rewards");
    const absl::Status status = CheckRewards(rewards, prompts, grey, says);
    progress.Enter("plan");
    return status;
  };
  OXBOW_RETURN_IF_ERROR(try_size(setup.model.latent_shape));
  if (setup.held_out.empty() || setup.evaluated_shape == setup.model.latent_shape) {
    return absl::OkStatus();
  }
  return Annotate(try_size(setup.evaluated_shape), "pictures of eval.height and eval.width");
}

std::map<std::string, std::string> IdentitiesOf(
    const std::map<std::string, reward::RewardFacts>& facts,
    const std::map<std::string, std::string>& before) {
  std::map<std::string, std::string> identities = before;
  for (const auto& [name, of_reward] : facts) {
    if (!of_reward.identity.empty()) identities[name] = of_reward.identity;
  }
  return identities;
}

absl::Status CheckIdentities(const std::map<std::string, reward::RewardFacts>& facts,
                             const std::map<std::string, std::string>& before) {
  for (const auto& [name, identity] : IdentitiesOf(facts, before)) {
    const auto pinned = before.find(name);
    if (pinned == before.end() || pinned->second == identity) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "reward ", name, " is another than the run was trained on: it was ", pinned->second,
        ", and is ", identity,
        "; bring the former back, or go on with the new one with --accept-reward-change"));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::learner
