// SPDX-License-Identifier: Apache-2.0
// The content of a model, by all of its bytes: SHA-256 of each tensor, and of each component.
// Where a directory lies and how its weights are split into files plays no part.
//
// Gigabytes are hashed once. The digests of a file of weights are remembered under
// $XDG_CACHE_HOME/oxbow/digests, else ~/.cache/oxbow/digests, with size, times, inode and device of
// the file: whatever writes to a file changes the time of its last change (ctime), which no program
// can set. Small files, and those of a machine without such a directory, are hashed each time.
//
//   oxbow tensor digests 1
//   SIZE MTIME_NS CTIME_NS INODE DEVICE
//   SHA256 TENSOR                           one line for each tensor, in the order of their names
//
// tools/encode_prompts/room.py reads and writes the same files.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "io/diffusers_directory.h"
#include "io/weight_files.h"

namespace oxbow::io {

// The digest of each tensor by its name, 64 hexadecimal digits. A file that was changed within
// `settled` may change again without another time, so it is not remembered.
std::map<std::string, std::string> TensorDigests(const WeightFiles& files,
                                                 absl::Duration settled = absl::Seconds(1));

// A config without the notes of the program that saved it.
std::string ConfigWithoutNotes(const std::string& config_json);

// "NAME SIZE SHA256\n": parts of a text to be hashed, in which no two lists of parts look alike.
std::string DigestLine(const std::string& name, std::string_view content);

// The digest of each component by its name: config and weights. One whose weights are not there has
// none: text encoders may be deleted once the prompts are encoded. Errors as OpenComponentWeights.
absl::StatusOr<std::map<std::string, std::string>> ModelDigests(
    const DiffusersComponents& components);

// Lines of a component's tensors, each named after the component: for ModelDigests and the identity
// of text encoders.
std::string TensorLines(const std::string& component, const WeightFiles& files);

// The same of a tokenizer's files.
absl::StatusOr<std::string> TokenizerLines(const std::string& component,
                                           const DiffusersComponent& tokenizer);

}  // namespace oxbow::io
