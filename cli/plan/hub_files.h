// SPDX-License-Identifier: Apache-2.0
// The files that a run reads from the Hugging Face Hub: the repositories that its file names by id,
// the part of each that oxbow reads, and whether the Hub's cache has it. And those that a person
// has to put where they belong.
#pragma once

#include <string>
#include <vector>

#include "io/hub_id.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// Files of one kind in one repository.
struct HubFiles {
  enum class Kind { kModel, kAdapter, kReward, kTokenizer, kPrompts };
  Kind kind = Kind::kModel;
  std::vector<std::string> keys;  // That name it: "model.path".
  std::string path;               // As they name it: "ORG/NAME@REVISION".

  io::HubId id() const { return *io::ParseHubId(path); }
  // Patterns of the files that are read. A repository may have others that are as large again.
  std::vector<std::string> patterns() const;
};

// In the order of the config, whose ids are no directories yet (FetchedModel); each once.
// `environment` has lines "NAME=VALUE".
std::vector<HubFiles> HubFilesOf(const v1::RunConfig& config,
                                 const std::vector<std::string>& environment);

// A directory or file that no id names, and that is not there.
struct LocalFile {
  std::string key;
  std::string path;
  std::string source;  // The source of its content; "" where nothing is known.
};

// In the order of the config.
std::vector<LocalFile> LocalFilesMissing(const v1::RunConfig& config);

// Where the cache has them; "" if it has none, or not all: the client ended before the last file.
std::string WholeIn(const HubFiles& files, const std::vector<std::string>& environment);

}  // namespace oxbow::cli
