// SPDX-License-Identifier: Apache-2.0
// Models and datasets of the Hugging Face Hub that `hf download` has put into its cache.
//
//   <cache>/models--ORG--NAME/refs/main        the commit that was downloaded; datasets--...
//   likewise <cache>/models--ORG--NAME/snapshots/COMMIT  its files
//
// The layout is that of huggingface_hub (guides/manage-cache). Nothing is fetched from a network.
#pragma once

#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// The files of the repository that `path` is the id of (io/hub_id.h), of a dataset the file or
// directory that it names, where the cache has them; of a snapshot that is not there any more the
// same one in this cache; otherwise `path`, as also where there is such a file. The cache is
// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. `environment` has lines "NAME=VALUE".
std::string FetchedModel(const std::string& path, const std::vector<std::string>& environment);

// The same for all that a reward reads, and for all that a run does.
void FindFetchedModels(const std::vector<std::string>& environment, v1::ScorerConfig& scorer);
void FindFetchedModels(const std::vector<std::string>& environment, v1::RunConfig& config);

}  // namespace oxbow::config
