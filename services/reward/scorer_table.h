// SPDX-License-Identifier: Apache-2.0
// All scorers of this build. A new scorer is a line in scorer_table.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::reward {

// In the order of the table.
std::vector<std::string> ScorerNames();

// The name of the scorer that an entry means.
const std::string& ScorerNameOf(const v1::ScorerConfig& config);

// Those that need no more than a name.
std::vector<std::string> PlainScorerNames();

// Entries of no more than these names.
std::vector<v1::ScorerConfig> EntriesNamed(const std::vector<std::string>& names);

// Checks an entry without loading its scorer. kInvalidArgument for an unknown scorer
// (it lists the known ones), and for a key that the scorer needs but is not there, or does not
// take; kNotFound names a file or directory that is not there.
absl::Status CheckScorer(const v1::ScorerConfig& config);

// The repository of the Hugging Face Hub whose tokenizer the entry takes: that which was published
// with its scorer, where the entry names none and its model comes without. "" if it needs none.
std::string PublishedTokenizer(const v1::ScorerConfig& config);
// The first key that the entry needs and does not set; "" if there is none.
std::string MissingKey(const v1::ScorerConfig& config);
// The published source for a key of the entry that names a directory or file, and how it becomes
// that. "" where nothing is known.
std::string SourceOf(const v1::ScorerConfig& config, const std::string& key);
// The files of a tokenizer.
const std::vector<std::string>& TokenizerFiles();

// The scorer of an entry, which has the entry's name. Errors are those of CheckScorer, and of
// loading.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const v1::ScorerConfig& config);

// A scorer that needs no more than its name.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name);

}  // namespace oxbow::reward
