// SPDX-License-Identifier: Apache-2.0
// Ids of the Hugging Face Hub, and the command of its own client that fetches one: of a repository
// of a model, "ORG/NAME" or "ORG/NAME@REVISION", and of what a dataset has,
// "hf://datasets/ORG/NAME[@REVISION][/PATH]", as the Hub's file system names it
// (huggingface_hub, guides/hf_file_system). Nothing here asks a network.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace oxbow::io {

struct HubId {
  std::string organisation;
  std::string name;
  std::string revision = "main";  // A branch, a tag or a commit.
  bool dataset = false;
  std::string path;  // A file or a directory of the dataset; empty: all of it.

  std::string repository() const { return organisation + "/" + name; }
};

// By its form alone. Nothing for what can be no id.
std::optional<HubId> ParseHubId(const std::string& path);
bool IsDatasetId(const std::string& path);

// "hf download ORG/NAME --revision v2 'vae/*'", with its arguments as a shell takes them. `files`:
// patterns of the files; none: all. More than one, since the client takes one alone by its name.
std::string DownloadCommand(const HubId& id, const std::vector<std::string>& files = {});
// The same as words, without the program.
std::vector<std::string> DownloadArguments(const HubId& id, const std::vector<std::string>& files);

// Advice on an id that leads to nothing, as the end of an error; "" for a path that can be no id.
std::string HubHint(const std::string& path);

}  // namespace oxbow::io
