// SPDX-License-Identifier: Apache-2.0
// Parts of small diffusers directories whose weights a test fills or draws, so that no file has
// them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace oxbow::testing {

// Fills the values, zeros until then, of the tensor `name`, which has so many numbers per row.
using Filling =
    std::function<void(const std::string& name, size_t row, std::vector<float>& values)>;

// Adds an autoencoder that `part` has the config.json and graph.json.gz of to the directory
// `model`, and to its model_index.json.
void AddAutoencoder(const std::filesystem::path& model, const std::filesystem::path& part,
                    const Filling& fill);
// One of this config.json, with weights of which a decoded latent neither vanishes nor overflows.
void AddDrawnAutoencoder(const std::filesystem::path& model, const char* config);

// The same of an autoencoder with a graph.
void AddDrawnAutoencoder(const std::filesystem::path& model, const std::filesystem::path& part);

// Adds drawn weights to a transformer that has its config.json and its graph.
void AddDrawnTransformer(const std::filesystem::path& model);

}  // namespace oxbow::testing
