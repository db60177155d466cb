// SPDX-License-Identifier: Apache-2.0
#include "core/reward/geneval_rule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace oxbow::reward {
namespace {

constexpr float kThreshold = 0.3F, kCountingThreshold = 0.9F;
constexpr size_t kCountedMax = 16;  // Detections of a class.
constexpr float kPositionOffset = 0.1F;

using Group = std::vector<size_t>;

struct Axis {
  float offset = 0;   // From the centre of b to that of a.
  float revised = 0;  // Shortened by the sizes.
};

Axis AxisOf(const Detection& a, const Detection& b, size_t axis) {
  const float a0 = a.box[axis], a1 = a.box[axis + 2], b0 = b.box[axis], b1 = b.box[axis + 2];
  const float offset = (a0 + a1) / 2 - (b0 + b1) / 2;
  const float sizes = std::abs(a1 - a0) + std::abs(b1 - b0);
  const float left = std::max(std::abs(offset) - kPositionOffset * sizes, 0.0F);
  return {.offset = offset, .revised = offset > 0 ? left : -left};
}

// Indices into GenevalRelations of what holds for a relative to b.
std::set<int> RelationsOf(const Detection& a, const Detection& b) {
  const Axis x = AxisOf(a, b, 0), y = AxisOf(a, b, 1);
  if (std::abs(x.revised) < 1e-3F && std::abs(y.revised) < 1e-3F) return {};
  const float norm = std::sqrt(x.offset * x.offset + y.offset * y.offset);
  const float dx = x.revised / norm, dy = y.revised / norm;
  std::set<int> relations;
  if (dx < -0.5F) relations.insert(0);
  if (dx > 0.5F) relations.insert(1);
  if (dy < -0.5F) relations.insert(2);
  if (dy > 0.5F) relations.insert(3);
  return relations;
}

std::string NamesOf(const std::set<int>& relations) {
  std::vector<std::string> names;
  for (const int relation : relations) {
    names.emplace_back(GenevalRelations()[static_cast<size_t>(relation)]);
  }
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, " and ");
}

Group FoundOf(const CountedDetections& counted, int thing) {
  const auto found = counted.find(thing);
  return found == counted.end() ? Group() : found->second;
}

// Whether there are so many that the colours of `count` of them are looked at.
bool Enough(const GenevalDemand& demand, size_t found, GenevalVariant variant) {
  const auto count = static_cast<size_t>(demand.count);
  return variant == GenevalVariant::kOfficial ? found >= count : found == count;
}

double Closeness(int64_t wanted, size_t found) {
  const auto want = static_cast<double>(wanted);
  return 1 - std::abs(want - static_cast<double>(found)) / want;
}

class Judgement {
 public:
  Judgement(absl::Span<const Detection> detections, const CountedDetections& counted,
            const std::map<size_t, int>& colours, GenevalVariant variant)
      : detections_(detections), counted_(counted), colours_(colours), variant_(variant) {}

  void Include(const GenevalDemand& demand) {
    Group found = FoundOf(counted_, demand.thing);
    if (variant_ == GenevalVariant::kOfficial && found.size() > Count(demand)) {
      found.resize(Count(demand));
    }
    const size_t reasons = reasons_.size();
    parts_.push_back(Closeness(demand.count, found.size()));
    if (!Enough(demand, found.size(), variant_)) {
      reasons_.push_back(absl::StrCat("expected ", NameOf(demand),
                                      variant_ == GenevalVariant::kOfficial ? ">=" : "==",
                                      demand.count, ", found ", found.size()));
      if (demand.colour || demand.position) parts_.push_back(0);
    } else {
      if (demand.colour) JudgeColour(demand, found);
      if (demand.position && reasons_.size() == reasons) JudgePosition(demand, found);
    }
    const bool matched = reasons_.size() == reasons;
    groups_.push_back(matched ? std::optional<Group>(std::move(found)) : std::nullopt);
  }

  void Exclude(const GenevalDemand& demand) {
    const size_t found = FoundOf(counted_, demand.thing).size();
    if (found < Count(demand)) return;
    reasons_.push_back(
        absl::StrCat("expected ", NameOf(demand), "<", demand.count, ", found ", found));
  }

  GenevalVerdict Verdict() const {
    const bool correct = reasons_.empty();
    double score = correct ? 1 : 0;
    if (variant_ == GenevalVariant::kFlowGrpo) {
      score = 0;
      for (const double part : parts_) score += part;
      if (!parts_.empty()) score /= static_cast<double>(parts_.size());
    }
    return {.correct = correct, .score = score, .reason = absl::StrJoin(reasons_, "\n")};
  }

 private:
  static size_t Count(const GenevalDemand& demand) { return static_cast<size_t>(demand.count); }
  static const char* NameOf(const GenevalDemand& demand) {
    return GenevalThings()[static_cast<size_t>(demand.thing)];
  }

  void JudgeColour(const GenevalDemand& demand, const Group& found) {
    std::vector<size_t> counts(GenevalColours().size());
    for (const size_t detection : found) ++counts[static_cast<size_t>(colours_.at(detection))];
    const size_t right = counts[static_cast<size_t>(*demand.colour)];
    parts_.push_back(Closeness(demand.count, right));
    if (right == Count(demand)) return;  // No more than `count` are looked at.
    const char* const colour = GenevalColours()[static_cast<size_t>(*demand.colour)];
    std::vector<std::string> seen;
    for (size_t c = 0; c < counts.size(); ++c) {
      if (counts[c] > 0) seen.push_back(absl::StrCat(counts[c], " ", GenevalColours()[c]));
    }
    reasons_.push_back(absl::StrCat("expected ", colour, " ", NameOf(demand), ">=", demand.count,
                                    ", found ", right, " ", colour, "; and ",
                                    absl::StrJoin(seen, ", ")));
  }

  void JudgePosition(const GenevalDemand& demand, const Group& found) {
    const char* const wanted = GenevalRelations()[static_cast<size_t>(demand.position->relation)];
    const std::optional<Group>& targets = groups_[demand.position->target];
    if (!targets) {
      reasons_.push_back(absl::StrCat("no target for ", NameOf(demand), " to be ", wanted));
      parts_.push_back(0);
      return;
    }
    if (const auto wrong = FirstWrong(demand.position->relation, found, *targets)) {
      reasons_.push_back(absl::StrCat("expected ", NameOf(demand), " ", wanted, " target, found ",
                                      NamesOf(*wrong), " target"));
      parts_.push_back(0);
    }
    parts_.push_back(1);
  }

  // The relations of the first pair for which `relation` does not hold.
  std::optional<std::set<int>> FirstWrong(int relation, const Group& found,
                                          const Group& targets) const {
    for (const size_t object : found) {
      for (const size_t target : targets) {
        std::set<int> relations = RelationsOf(detections_[object], detections_[target]);
        if (!relations.contains(relation)) return relations;
      }
    }
    return std::nullopt;
  }

  const absl::Span<const Detection> detections_;
  const CountedDetections& counted_;
  const std::map<size_t, int>& colours_;
  const GenevalVariant variant_;
  std::vector<std::optional<Group>> groups_;  // By entry of `include`; none where it is not met.
  std::vector<std::string> reasons_;
  std::vector<double> parts_;  // The parts of flow_grpo's score.
};

}  // namespace

float GenevalThreshold(std::string_view tag) {
  return tag == "counting" ? kCountingThreshold : kThreshold;
}

CountedDetections CountDetections(absl::Span<const Detection> detections, std::string_view tag) {
  CountedDetections counted;
  const float threshold = GenevalThreshold(tag);
  for (size_t i = detections.size(); i-- > 0;) {
    if (detections[i].score > threshold) counted[detections[i].thing].push_back(i);
  }
  for (auto& [thing, group] : counted) {
    std::stable_sort(group.begin(), group.end(),
                     [&](size_t a, size_t b) { return detections[a].score > detections[b].score; });
    if (group.size() > kCountedMax) group.resize(kCountedMax);
  }
  return counted;
}

std::vector<size_t> DetectionsToColour(const GenevalPrompt& prompt,
                                       const CountedDetections& counted, GenevalVariant variant) {
  std::set<size_t> needed;
  for (const GenevalDemand& demand : prompt.include) {
    const Group found = FoundOf(counted, demand.thing);
    if (!demand.colour || !Enough(demand, found.size(), variant)) continue;
    needed.insert(found.begin(), found.begin() + demand.count);
  }
  return {needed.begin(), needed.end()};
}

GenevalVerdict JudgeGeneval(const GenevalPrompt& prompt, absl::Span<const Detection> detections,
                            const CountedDetections& counted, const std::map<size_t, int>& colours,
                            GenevalVariant variant) {
  Judgement judgement(detections, counted, colours, variant);
  for (const GenevalDemand& demand : prompt.include) judgement.Include(demand);
  if (variant == GenevalVariant::kOfficial) {
    for (const GenevalDemand& demand : prompt.exclude) judgement.Exclude(demand);
  }
  return judgement.Verdict();
}

}  // namespace oxbow::reward
