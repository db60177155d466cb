// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/store_config.h"

#include <algorithm>
#include <utility>

namespace oxbow::buffer {

replay::Decay DecayOf(const v1::ReplayConfig& replay) {
  return {.form = replay.decay() == v1::DECAY_FORM_SUBTRACTIVE ? replay::DecayForm::kSubtractive
                                                               : replay::DecayForm::kMultiplicative,
          .rate = replay.decay_rate(),
          .floor = replay.reward_floor()};
}

namespace {

replay::DrawPolicy DrawOf(v1::ReplayDraw draw) {
  switch (draw) {
    case v1::REPLAY_DRAW_PRIORITY:
      return replay::DrawPolicy::kPriority;
    case v1::REPLAY_DRAW_NEWEST:
      return replay::DrawPolicy::kNewest;
    case v1::REPLAY_DRAW_LEARNABLE:
      return replay::DrawPolicy::kLearnable;
    case v1::REPLAY_DRAW_BEST:
      return replay::DrawPolicy::kBest;
    case v1::REPLAY_DRAW_VARIED:
      return replay::DrawPolicy::kVaried;
    default:
      return replay::DrawPolicy::kUniform;
  }
}

}  // namespace

std::vector<replay::TablePolicy> TablesOf(const v1::RunConfig& config) {
  const v1::ReplayConfig& replay = config.replay();
  const uint64_t shards = std::max(1u, config.services().replay_shards());
  const auto share = [shards](uint64_t capacity) { return (capacity + shards - 1) / shards; };
  std::vector<replay::TablePolicy> tables = {
      replay::BestTable(share(replay.capacity()), DrawOf(replay.draw()),
                        {.uses_max = replay.max_uses(), .age_max = replay.max_age()})};
  const v1::AdaptationConfig& adaptation = config.adaptation();
  if (!adaptation.enabled()) return tables;
  const uint64_t groups = config.batch().groups();
  for (replay::TablePolicy& table : replay::AdaptationTables(
           adaptation.again_every() > 0 ? share(groups) : 0,
           share(groups * adaptation.recent_steps()), adaptation.recent_steps())) {
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace oxbow::buffer
