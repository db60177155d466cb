#include "services/learner/reward_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace oxbow::learner {
absl::Status CheckRewards(reward::RewardClient& rewards, const std::vector<v1::Prompt>& prompts,
                          const Image8& image,
                          const std::function<void(const std::string&)>& says) {
  absl::Status status = rewards.AwaitDescription(says);
  for (size_t i = 0; status.ok() && i < std::min(kPromptsChecked, prompts.size()); ++i) {
    const auto scores =
        rewards.Score(prompts[i].text(), prompts[i].metadata_json(), {image}, {.waits = true});
    if (scores[0].ok()) return absl::OkStatus();
    if (!reward::IsUnscorable(scores[0].status())) return absl::OkStatus();  // Cancelled.
    if (i + 1 < std::min(kPromptsChecked, prompts.size())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a reward cannot score a grey image, tried with ", i + 1,
                     " prompts; correct it and start again; it says: ",
                     std::string(scores[0].status().message())));
  }
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace oxbow::learner
