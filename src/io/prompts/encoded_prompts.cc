// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/encoded_prompts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::io {

using model::EncodedText;

absl::StatusOr<std::unique_ptr<EncodedPrompts>> EncodedPrompts::Open(
    const DiffusersComponents& components, const Options& options) {
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<TextEncoders> encoders,
                         TextEncoders::Open(components, options.encoders));
  std::optional<PromptStore> store;
  if (!options.directory.empty()) {
    OXBOW_ASSIGN_OR_RETURN(const std::string identity, encoders->Identity());
    OXBOW_ASSIGN_OR_RETURN(store,
                           PromptStore::Open(options.directory, identity, encoders->row_shapes()));
  }
  return std::unique_ptr<EncodedPrompts>(
      new EncodedPrompts(std::move(encoders), std::move(store), options.batch));
}

absl::StatusOr<std::optional<EncodedText>> EncodedPrompts::Find(const std::string& text) const {
  if (!store_.has_value()) return std::optional<EncodedText>();
  return store_->Read(text);
}

absl::Status EncodedPrompts::CheckCanEncode(const std::vector<std::string>& missing) const {
  if (missing.empty()) return absl::OkStatus();
  return encoders_->CheckCanEncode(missing, stored() ? directory() : std::filesystem::path());
}

absl::StatusOr<std::vector<EncodedText>> EncodedPrompts::EncodeBatch(
    const std::vector<std::string>& texts) {
  OXBOW_ASSIGN_OR_RETURN(const EncodedText together, encoders_->Encode(texts));
  std::vector<EncodedText> rows(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    for (const auto& [name, tensor] : together) {
      rows[i][name] = tensor.narrow(0, static_cast<int64_t>(i), 1).contiguous();
    }
    if (store_.has_value()) OXBOW_RETURN_IF_ERROR(store_->Write(texts[i], rows[i]));
  }
  return rows;
}

absl::StatusOr<model::Conditioning> EncodedPrompts::Get(const std::vector<std::string>& texts) {
  OXBOW_CHECK(!texts.empty()) << "no prompts";
  const at::NoGradGuard no_gradients;
  std::map<std::string, EncodedText> rows;
  std::vector<std::string> missing;
  for (const std::string& text : texts) {
    if (rows.contains(text)) continue;
    OXBOW_ASSIGN_OR_RETURN(std::optional<EncodedText> row, Find(text));
    if (!row.has_value()) missing.push_back(text);
    rows[text] = std::move(row).value_or(EncodedText());
  }
  OXBOW_RETURN_IF_ERROR(CheckCanEncode(missing));
  for (size_t begin = 0; begin < missing.size(); begin += batch_) {
    const auto first = missing.begin() + static_cast<ptrdiff_t>(begin);
    const std::vector<std::string> some(
        first, first + static_cast<ptrdiff_t>(std::min(batch_, missing.size() - begin)));
    OXBOW_ASSIGN_OR_RETURN(std::vector<EncodedText> encoded, EncodeBatch(some));
    for (size_t i = 0; i < some.size(); ++i) rows[some[i]] = std::move(encoded[i]);
  }
  std::map<std::string, std::vector<at::Tensor>> columns;
  for (const std::string& text : texts) {
    for (const auto& [name, tensor] : rows.at(text)) columns[name].push_back(tensor);
  }
  EncodedText together;
  for (const auto& [name, parts] : columns) together[name] = at::cat(parts);
  return encoders_->Compose(together);
}

absl::StatusOr<std::vector<std::string>> EncodedPrompts::Missing(
    const std::vector<std::string>& texts) const {
  OXBOW_CHECK(stored()) << "prompts are looked for on disk";
  std::vector<std::string> missing;
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    if (seen.insert(text).second && !store_->Has(text)) missing.push_back(text);
  }
  OXBOW_RETURN_IF_ERROR(CheckCanEncode(missing));
  return missing;
}

absl::StatusOr<size_t> EncodedPrompts::Prepare(const std::vector<std::string>& texts,
                                               const std::function<void(const Progress&)>& show,
                                               double from) {
  OXBOW_ASSIGN_OR_RETURN(std::vector<std::string> missing, Missing(texts));
  const auto first = static_cast<ptrdiff_t>(from * static_cast<double>(missing.size()));
  std::rotate(missing.begin(), missing.begin() + first, missing.end());
  Progress progress{.done = 0, .total = missing.size()};
  show(progress);
  while (progress.done < missing.size()) {
    std::vector<std::string> batch;
    for (; batch.size() < batch_ && progress.done < missing.size(); ++progress.done) {
      const std::string& text = missing[progress.done];
      if (!store_->Has(text)) batch.push_back(text);
    }
    if (!batch.empty()) OXBOW_RETURN_IF_ERROR(EncodeBatch(batch).status());
    show(progress);
  }
  return missing.size();
}

}  // namespace oxbow::io
