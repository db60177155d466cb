// SPDX-License-Identifier: Apache-2.0
// For any bytes as a prompt file: it is refused in one line that names it, or its prompts are
// UTF-8, distinct, within the limits, and named by their content. The first byte says which form.
#include <set>

#include "base/check.h"
#include "io/text_lines.h"
#include "run/prompt.h"
#include "run/prompt_files.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  if (size == 0) return 0;
  static const fuzz::Scratch scratch;
  const std::string name = data[0] % 2 == 0 ? "prompts.jsonl" : "prompts.txt";
  scratch.Write(name, fuzz::Text(data + 1, size - 1));
  const run::PromptLimits limits{.line_bytes_max = 256, .bytes_max = 1024};
  const auto prompts = run::ReadPrompts(scratch.path() / name, run::PromptSplit::kTrain, limits);
  if (!prompts.ok()) {
    const std::string said(prompts.status().message());
    OXBOW_CHECK(said.find(name) != said.npos && said.find('\n') == said.npos) << said;
    return 0;
  }
  std::set<uint64_t> ids;
  uint64_t bytes = 0;
  for (const v1::Prompt& prompt : *prompts) {
    OXBOW_CHECK(ids.insert(prompt.id()).second) << prompt.text();
    OXBOW_CHECK(!prompt.text().empty() && io::IsUtf8(prompt.text())) << prompt.text();
    OXBOW_CHECK(prompt.id() == run::PromptIdOf(prompt.text(), prompt.metadata_json()));
    bytes += prompt.text().size() + prompt.metadata_json().size();
  }
  OXBOW_CHECK(!ids.empty() && bytes <= limits.bytes_max) << bytes;
  (void)run::CountNegativePrompts(*prompts);
  return 0;
}
