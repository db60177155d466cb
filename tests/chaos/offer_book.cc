// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/offer_book.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace oxbow::chaos {
namespace {

const std::string& TextIn(const Event& event, const std::string& field) {
  static const std::string& none = *new std::string;
  const auto found = event.find(field);
  return found == event.end() ? none : found->second;
}

}  // namespace

uint64_t NumberIn(const Event& event, const std::string& field) {
  return std::strtoull(TextIn(event, field).c_str(), nullptr, 10);
}

const std::string& NameOf(const Event& event) { return TextIn(event, "event"); }

void OfferBook::Hear(const Event& event) {
  const std::string& name = NameOf(event);
  if (name == "offer answered") Answer(event);
  if (name == "replay buffer keeps a checkpoint") kept_[TextIn(event, "checkpoint")] = page_;
  if (name == "replay buffer restored") {
    const std::string& checkpoint = TextIn(event, "checkpoint");
    if (!checkpoint.empty() && !kept_.contains(checkpoint)) {
      impossible_.push_back(
          absl::StrCat("the buffer went back to a checkpoint it never kept: ", checkpoint));
    }
    const uint64_t step = NumberIn(event, "step");
    if (checkpoint.empty() && step > 0) {
      Rewind(step);
    } else {
      page_ = checkpoint.empty() ? Page() : kept_[checkpoint];
    }
  }
  // Its offers may have been taken, and the run may end before they are made again.
  const bool unanswered = name == "replay buffer is away, training goes on without it";
  if (unanswered && TextIn(event, "call") == "commit") page_.unknown_victims += most_answers_;
  if (name == "entry evicted") Displace(NumberIn(event, "entry"), 0);
}

// The buffer had no checkpoint and kept what was born before `step`. The call that was under way
// when the learner died had no answer: what it stored is gone again, and so is what that displaced.
void OfferBook::Rewind(uint64_t step) {
  for (const auto& [entry, born] : page_.born) {
    if (born < step) continue;
    page_.seen.erase(entry);
    page_.dead.erase(entry);
    page_.perhaps_gone.erase(entry);
  }
  std::erase_if(page_.live, [&](const auto& item) { return page_.born[item.second] >= step; });
  std::erase_if(page_.born, [&](const auto& item) { return item.second >= step; });
  page_.unknown_victims += most_answers_;
}

// An unknown victim was stored by a call whose answer was lost.
void OfferBook::Displace(uint64_t victim, uint64_t by) {
  if (by != 0 && page_.dead.contains(victim)) {
    impossible_.push_back(
        absl::StrCat("entry ", by, " displaced entry ", victim, ", which was gone before"));
  }
  std::erase_if(page_.live, [&](const auto& item) { return item.second == victim; });
  page_.dead.insert(victim);
}

void OfferBook::Answer(const Event& event) {
  const std::string& outcome = TextIn(event, "outcome");
  const uint64_t entry = NumberIn(event, "entry");
  const uint64_t prompt = NumberIn(event, "prompt");
  const uint64_t step = NumberIn(event, "step");
  answers_ = step == step_ ? answers_ + 1 : 1;
  step_ = step;
  most_answers_ = std::max(most_answers_, answers_);
  page_.born[entry] = step;
  const bool first = page_.seen.insert(entry).second;
  const auto occupant = page_.live.find(prompt);
  if (outcome == "duplicate") {
    if (!first) return;
    if (occupant != page_.live.end()) {
      page_.perhaps_gone.insert(occupant->second);
    } else if (page_.live.size() + page_.unknown_victims >= capacity_) {
      ++page_.unknown_victims;
    }
    return;
  }
  if (outcome == "replaced") Displace(NumberIn(event, "replaced"), entry);
  if (outcome != "replaced" && outcome != "inserted") return;
  const auto [at, alone] = page_.live.emplace(prompt, entry);
  const bool excused = page_.perhaps_gone.contains(at->second) || page_.unknown_victims > 0;
  if (!alone && !excused) {
    impossible_.push_back(absl::StrCat("entry ", entry, " of prompt ", prompt, " was ", outcome,
                                       " while entry ", at->second, " of that prompt lived"));
  }
  at->second = entry;
  if (page_.live.size() > capacity_) {
    impossible_.push_back(absl::StrCat("entry ", entry, " was ", outcome, " as number ",
                                       page_.live.size(), " of a buffer of ", capacity_));
  }
}

std::vector<std::string> OfferBook::Missing(const std::vector<StoredEntry>& content) const {
  std::map<uint64_t, bool> stored;
  for (const StoredEntry& entry : content) stored[entry.id] = entry.whole;
  std::vector<std::string> missing;
  uint64_t excused = page_.unknown_victims;
  for (const auto& [prompt, entry] : page_.live) {
    const auto found = stored.find(entry);
    if (found == stored.end()) {
      if (page_.perhaps_gone.contains(entry)) continue;
      if (excused > 0) {
        --excused;
        continue;
      }
      missing.push_back(absl::StrCat("entry ", entry, " of prompt ", prompt,
                                     " was acknowledged and is not in the buffer"));
    } else if (!found->second) {
      missing.push_back(absl::StrCat("entry ", entry, " was acknowledged and cannot be read"));
    }
  }
  return missing;
}

}  // namespace oxbow::chaos
