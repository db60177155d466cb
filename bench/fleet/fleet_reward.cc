// SPDX-License-Identifier: Apache-2.0
// A reward server of fleet_load: the product's service around a scorer that reads one pixel. Serves
// until a stop signal.
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parent_death.h"
#include "bench/fleet/own_account.h"
#include "rpc/server.h"
#include "services/reward/reward_service.h"

namespace oxbow::bench {
namespace {

// The first pixel, from 0 to 1 (made_up_group.h).
class Grey final : public reward::PictureScorer {
 public:
  Grey() : PictureScorer({.name = "grey", .identity = "grey/1"}) {}
  absl::StatusOr<reward::Score> ScorePicture(std::string_view, std::string_view,
                                             const Image8& image) const override {
    return reward::Score{.value = image.pixels.at(0) / 255.0};
  }
};

int Main() {
  if (!DieWithParent(getppid())) return 1;
  ConfigureLog(LogLevel::kError, LogFormat::kText, "reward");
  rpc::BlockStopSignals();
  std::vector<std::unique_ptr<reward::Scorer>> scorers;
  scorers.push_back(std::make_unique<Grey>());
  const reward::ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  reward::RewardMetrics metrics(registry, panel);
  const OwnAccount account;
  reward::RewardService service({}, panel, metrics, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service});
  OXBOW_CHECK(server.ok()) << server.status();
  rpc::AnnounceReady("reward", (*server)->endpoint(), "-");
  rpc::WaitForStopSignal();
  (*server)->Shutdown(absl::Seconds(1));
  account.Print();
  return 0;
}

}  // namespace
}  // namespace oxbow::bench

int main() { return oxbow::bench::Main(); }
