// SPDX-License-Identifier: Apache-2.0
// For any bytes as a step log: opening it keeps its whole lines, or all but the last of them (which
// a power loss may have damaged), and nothing else. As an epoch file: it is refused as damaged, or
// the next epoch is one more.
#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/file.h"
#include "services/learner/record/step_log.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  const std::string text(fuzz::Text(data, size));
  scratch.Write("steps.jsonl", text);
  OXBOW_CHECK(learner::StepLog::Open(scratch.path() / "steps.jsonl").ok());
  const auto kept = ReadFile(scratch.path() / "steps.jsonl");
  const std::string whole = text.substr(0, text.rfind('\n') + 1);
  OXBOW_CHECK(kept.ok() && whole.substr(0, kept->size()) == *kept) << kept.status().ToString();
  OXBOW_CHECK(kept->empty() || kept->back() == '\n') << *kept;
  const size_t dropped = whole.find('\n', kept->size());
  OXBOW_CHECK(kept->size() == whole.size() || dropped + 1 == whole.size()) << *kept;

  scratch.Write("epoch", text);
  uint64_t before = 0;
  const bool number = absl::SimpleAtoi(text, &before);
  const auto next = learner::NextEpoch(scratch.path() / "epoch");
  OXBOW_CHECK(next.ok() || absl::IsDataLoss(next.status())) << next.status().ToString();
  OXBOW_CHECK(!next.ok() || (number && next->value > before)) << next->value << " after " << text;
  return 0;
}
