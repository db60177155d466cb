// SPDX-License-Identifier: Apache-2.0
// For any metadata and any detections: they are refused, or there is a verdict within its limits.
//
//   metadata, detections (21 bytes each: class, box and score as floats), separated by byte 30
#include <cmath>
#include <cstring>

#include "core/reward/geneval_rule.h"
#include "tests/fuzz/tokenizer_input.h"

namespace {

std::vector<oxbow::reward::Detection> DetectionsOf(const std::string& bytes) {
  constexpr size_t kBytes = 21;
  std::vector<oxbow::reward::Detection> detections;
  for (size_t at = 0; at + kBytes <= bytes.size(); at += kBytes) {
    oxbow::reward::Detection detection{.thing = static_cast<uint8_t>(bytes[at]) % 80};
    std::memcpy(detection.box.data(), &bytes[at + 1], sizeof detection.box);
    std::memcpy(&detection.score, &bytes[at + 17], sizeof detection.score);
    detections.push_back(detection);
  }
  return detections;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::reward;  // NOLINT: a file of one function.
  const auto parts = oxbow::fuzz::Parts(data, size, 2);
  const auto prompt = ParseGenevalPrompt(parts[0]);
  if (!prompt.ok()) {
    OXBOW_CHECK(prompt.status().code() == absl::StatusCode::kInvalidArgument) << prompt.status();
    OXBOW_CHECK(prompt.status().message().size() < 1000) << prompt.status();
    return 0;
  }
  const std::vector<Detection> detections = DetectionsOf(parts[1]);
  const CountedDetections counted = CountDetections(detections, prompt->tag);
  for (const auto& [thing, group] : counted) OXBOW_CHECK(group.size() <= 16) << group.size();
  for (const auto variant : {GenevalVariant::kOfficial, GenevalVariant::kFlowGrpo}) {
    std::map<size_t, int> colours;
    for (const size_t i : DetectionsToColour(*prompt, counted, variant)) {
      colours[i] = detections[i].thing % 10;
    }
    const GenevalVerdict verdict = JudgeGeneval(*prompt, detections, counted, colours, variant);
    OXBOW_CHECK(verdict.correct == verdict.reason.empty());
    OXBOW_CHECK(verdict.score >= -14 && verdict.score <= 1) << verdict.score;
    OXBOW_CHECK(variant != GenevalVariant::kOfficial || verdict.score == (verdict.correct ? 1 : 0));
  }
  return 0;
}
