// What makes two sets of text encoders the same, so that what one encoded serves the other.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

// SHA-256 in hexadecimal digits over the configs, the tokenizers' files and the weights of all text
// components, and `settings`. Where the directory lies and how its weights are split into files
// plays no part. Of a tensor over 64 KiB four pieces of 4 KiB stand for the whole: reading every
// byte of 10 GB at each start would take longer than the prompts, and training leaves none of them
// as they were.
absl::StatusOr<std::string> IdentityOfTextEncoders(const DiffusersComponents& components,
                                                   const std::string& settings);

}  // namespace oxbow::io
