// How the prompts of each supported pipeline become conditioning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

struct TextSide {
  std::string name;  // Pipeline::text_side.
  // As TextEncoders::Open.
  absl::StatusOr<std::unique_ptr<TextEncoders>> (*open)(const DiffusersComponents& components,
                                                        const TextEncoders::Options& options);
  // Tokens that the conditioning of a prompt has, by the configs alone.
  absl::StatusOr<int64_t> (*prompt_tokens)(const DiffusersComponents& components,
                                           int64_t t5_length);
};

// One row per way. text_side_table.cc defines nothing else, so that a binary which defines its own
// table takes that one.
const std::vector<TextSide>& TextSideTable();

}  // namespace oxbow::io
