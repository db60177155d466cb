// SPDX-License-Identifier: Apache-2.0
// Models of the Hugging Face Hub that `hf download ORG/NAME` has put into its cache.
//
//   <cache>/models--ORG--NAME/refs/main        the commit that was downloaded
//   <cache>/models--ORG--NAME/snapshots/COMMIT  its files
//
// The layout is that of huggingface_hub (guides/manage-cache). Nothing is fetched from a network.
#pragma once

#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Whether a path looks like the id of a model, "ORG/NAME" or "ORG/NAME@REVISION", and is no file.
bool LooksLikeHubId(const std::string& path);

// The files of the model that `path` is the id of, where the cache has them; otherwise `path`.
// The cache is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. `environment` has lines "NAME=VALUE".
std::string FetchedModel(const std::string& path, const std::vector<std::string>& environment);

// The same for the model and for the models of rewards.
void FindFetchedModels(const std::vector<std::string>& environment, v1::RunConfig& config);

}  // namespace oxbow::config
