// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/offer_decision.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/replay/priority.h"

namespace oxbow::buffer {
namespace {

// The reason why an entry cannot enter any table; empty: it may.
std::string Fault(LiveReplay& live, const Entry& entry) {
  const ReplayState& state = live.state();
  const uint64_t steps = live.options().remembered_steps;
  const LearnerStep now = state.clock().step;
  if (!entry.invalid.empty()) return entry.invalid;
  if (!std::isfinite(entry.reward)) return absl::StrCat("reward is ", entry.reward);
  if (replay::AgeAt(now, entry.birth) > steps) {
    return absl::StrCat("born more than ", steps, " steps ago: ", entry.birth.value);
  }
  if (entry.birth < state.forgotten()) {
    return absl::StrCat("born before step ", state.forgotten().value,
                        ", whose ids had to be forgotten: ", entry.birth.value);
  }
  if (const absl::Status ahead = CheckStep(now, entry.birth); !ahead.ok()) {
    return absl::StrCat("birth: ", ahead.message());
  }
  return std::string(Declared(state, entry.table).status().message());
}

}  // namespace

OfferResult DecideOffer(LiveReplay& live, Entry& entry, rocksdb::WriteBatch& batch) {
  ReplayState& state = live.state();
  OfferResult result{.entry = entry.id};
  if (state.WasOffered(entry.id)) {
    result.outcome = Outcome::kDuplicate;
    return result;
  }
  result.error = Fault(live, entry);
  if (!result.error.empty()) return result;
  const Table& table = **Declared(state, entry.table);
  const LearnerStep now = state.clock().step;
  state.Remember(entry.id, std::max(now, entry.birth), batch);
  const replay::Decision decision = table.Decide(entry, now);
  if (decision.verdict == replay::Verdict::kReject) {
    result.outcome = Outcome::kRejectedLower;
    return result;
  }
  if (decision.verdict == replay::Verdict::kReplace) state.Drop(decision.victim, batch);
  state.Insert(entry, batch);
  while (table.size() > table.policy().capacity) Evict(live, table, table.NextToLeave()->id, batch);
  result.replaced = decision.victim;
  result.outcome =
      decision.verdict == replay::Verdict::kInsert ? Outcome::kInserted : Outcome::kReplaced;
  return result;
}

absl::Status MakeRoomForIds(LiveReplay& live, uint64_t count, rocksdb::WriteBatch& batch) {
  ReplayState& state = live.state();
  const uint64_t most = live.options().remembered_max;
  if (state.remembered() + count <= most) return absl::OkStatus();
  state.ForgetDownTo(most - std::min(most, count), state.clock().step, batch);
  if (state.remembered() + count <= most) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("more entries were offered in one step than ids can be "
                   "remembered: ",
                   state.remembered() + count, ", limit ", most));
}

}  // namespace oxbow::buffer
