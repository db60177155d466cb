// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/report/run_summary.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "config/validate.h"
#include "core/replay/table_policy.h"
#include "run/endpoints_file.h"
#include "services/buffer/database.h"
#include "services/buffer/entry_conversion.h"
#include "services/buffer/replay_directory.h"
#include "services/buffer/replay_store.h"
#include "services/buffer/store_config.h"
#include "services/buffer/verification.h"

namespace oxbow::cli {

namespace {

class Audit {
 public:
  Audit(ReplaySource& source, size_t findings_max) : source_(source), findings_max_(findings_max) {}

  absl::StatusOr<ReplayAudit> Run() {
    std::string cursor;
    do {
      OXBOW_ASSIGN_OR_RETURN(const v1::VerifyResponse page, source_.Verify(cursor));
      for (const v1::VerifiedEntry& entry : page.entries()) {
        OXBOW_RETURN_IF_ERROR(Look(entry));
      }
      cursor = page.next_cursor();
    } while (!cursor.empty());
    audit_.damaged = damaged_.size();
    return std::move(audit_);
  }

 private:
  absl::Status Look(const v1::VerifiedEntry& entry) {
    ++audit_.entries;
    audit_.bytes += entry.stored_bytes();
    for (const std::string& problem : entry.problems()) {
      Found(entry.entry_id(), entry.table(), problem);
    }
    if (entry.table() != replay::kBestTable || entry.retired() || entry.prompt_id() == 0) {
      return absl::OkStatus();
    }
    const auto [known, first] = of_prompt_.try_emplace(entry.prompt_id(), entry.entry_id());
    if (first || known->second == entry.entry_id()) return absl::OkStatus();
    OXBOW_ASSIGN_OR_RETURN(const bool both, BothLive(known->second, entry.entry_id()));
    if (both) {
      Found(entry.entry_id(), entry.table(),
            absl::StrCat("second live entry of the prompt of entry ", known->second));
    } else {
      known->second = entry.entry_id();
    }
    return absl::OkStatus();
  }

  // A directory does not change under us; in a live buffer the first may have been replaced.
  absl::StatusOr<bool> BothLive(uint64_t first, uint64_t second) {
    if (!source_.live()) return true;
    for (const uint64_t id : {first, second}) {
      OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::ReplayEntry> page,
                             source_.Page("", EntryId(id - 1)));
      if (page.empty() || page.front().entry_id() != id) return false;
    }
    return true;
  }

  void Found(uint64_t entry, const std::string& table, const std::string& problem) {
    damaged_.insert(entry);
    if (audit_.findings.size() < findings_max_) audit_.findings.push_back({entry, table, problem});
  }

  ReplaySource& source_;
  const size_t findings_max_;
  absl::flat_hash_map<uint64_t, uint64_t> of_prompt_;  // Live entries of `best`.
  std::set<uint64_t> damaged_;
  ReplayAudit audit_;
};

class Live final : public ReplaySource {
 public:
  Live(const std::string& endpoint, absl::Duration timeout)
      : endpoint_(endpoint), client_(endpoint, timeout) {}

  std::string name() const override { return endpoint_; }
  bool live() const override { return true; }
  absl::StatusOr<v1::InfoResponse> Info() override { return client_.Info(); }
  absl::StatusOr<std::vector<v1::ReplayEntry>> Page(const std::string& table,
                                                    EntryId after) override {
    return client_.ListPage(table, after, kReplayPage);
  }
  absl::StatusOr<v1::ReplayEntry> Read(EntryId entry) override { return client_.ReadWhole(entry); }
  absl::StatusOr<v1::ReplayEntry> ReadPicture(EntryId entry) override {
    return client_.ReadPicture(entry);
  }
  absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor) override {
    return client_.Verify(cursor, kReplayPage);
  }

 private:
  const std::string endpoint_;
  buffer::ReplayClient client_;
};

// Verify opens the database by itself: a store with a damaged record cannot be opened whole.
class Stored final : public ReplaySource {
 public:
  Stored(std::filesystem::path directory, std::optional<replay::Decay> decay)
      : directory_(std::move(directory)), decay_(decay) {}

  std::string name() const override { return directory_.string(); }
  bool live() const override { return false; }

  absl::StatusOr<v1::InfoResponse> Info() override {
    OXBOW_RETURN_IF_ERROR(Open());
    const buffer::StoreInfo info = store_->Info();
    v1::InfoResponse response;
    response.set_entries(info.entries);
    response.set_bytes(info.bytes);
    response.set_step(info.step.value);
    response.set_disk_bytes(info.disk_bytes);
    for (const buffer::TableState& table : info.tables) {
      v1::TableInfo& told = *response.add_tables();
      told.set_name(table.policy.name);
      told.set_entries(table.entries);
      told.set_bytes(table.bytes);
    }
    return response;
  }

  absl::StatusOr<std::vector<v1::ReplayEntry>> Page(const std::string& table,
                                                    EntryId after) override {
    OXBOW_RETURN_IF_ERROR(Open());
    const auto listed = store_->List(kReplayPage, after, buffer::TableOf(table));
    // A directory has only the queues that have entries; a run may have these two.
    const bool queue = table == replay::kHardPrompts || table == replay::kRecentGroups;
    if (queue && absl::IsNotFound(listed.status())) return std::vector<v1::ReplayEntry>();
    OXBOW_RETURN_IF_ERROR(listed.status());
    std::vector<v1::ReplayEntry> entries;
    for (const buffer::Entry& stored : *listed) {
      OXBOW_ASSIGN_OR_RETURN(v1::ReplayEntry entry, buffer::EntryToProto(stored));
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  absl::StatusOr<v1::ReplayEntry> Read(EntryId id) override {
    OXBOW_ASSIGN_OR_RETURN(v1::ReplayEntry entry, ReadPicture(id));
    const v1::Tensor& stored = entry.trajectory().latents();
    const auto count = stored.shape().empty() ? 0 : static_cast<uint32_t>(stored.shape(0));
    OXBOW_ASSIGN_OR_RETURN(std::string latents, store_->ReadLatents(id, 0, count));
    if (latents.empty()) return entry;
    entry.mutable_trajectory()->mutable_latents()->set_data(std::move(latents));
    return entry;
  }

  absl::StatusOr<v1::ReplayEntry> ReadPicture(EntryId id) override {
    OXBOW_RETURN_IF_ERROR(Open());
    OXBOW_ASSIGN_OR_RETURN(const buffer::Entry stored, store_->Find(id, /*conditioning=*/true));
    return buffer::EntryToProto(stored);
  }

  absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor) override {
    if (database_ == nullptr) {
      OXBOW_ASSIGN_OR_RETURN(lock_, buffer::ReplayDirectory::OpenForReading(directory_));
      OXBOW_ASSIGN_OR_RETURN(const buffer::ReplayDirectory::Live live, lock_->FindLive());
      OXBOW_ASSIGN_OR_RETURN(database_, buffer::Database::OpenReadOnly(live.path));
    }
    OXBOW_ASSIGN_OR_RETURN(const buffer::VerifiedPage page,
                           buffer::VerifyEntries(*database_, cursor, kReplayPage));
    return buffer::ToProto(page);
  }

 private:
  absl::Status Open() {
    if (store_ != nullptr) return absl::OkStatus();
    auto store = buffer::ReplayStore::OpenForReading(directory_, decay_.value_or(replay::Decay()));
    if (absl::IsDataLoss(store.status())) {
      return absl::DataLossError(absl::StrCat(std::string(store.status().message()),
                                              " (oxbow replay verify names all that is damaged)"));
    }
    OXBOW_RETURN_IF_ERROR(store.status());
    store_ = *std::move(store);
    return absl::OkStatus();
  }

  const std::filesystem::path directory_;
  const std::optional<replay::Decay> decay_;
  std::unique_ptr<buffer::ReplayStore> store_;
  std::unique_ptr<buffer::ReplayDirectory> lock_;
  std::unique_ptr<buffer::Database> database_;
};

// config.resolved.yaml of the run whose buffer `data` is; empty where there is none.
std::filesystem::path ConfigBeside(const std::filesystem::path& data) {
  if (data.empty()) return {};
  const std::filesystem::path whole = std::filesystem::absolute(data).lexically_normal();
  const std::filesystem::path run =  // A path that ends in / has an empty last part.
      whole.has_filename() ? whole.parent_path() : whole.parent_path().parent_path();
  const std::filesystem::path config = run / "config.resolved.yaml";
  return std::filesystem::exists(config) ? config : std::filesystem::path();
}

// The live buffer of a run, if its run directory names one of this shard and it answers.
std::unique_ptr<ReplaySource> LiveOf(const std::filesystem::path& run_dir, uint32_t shard,
                                     absl::Duration timeout) {
  const auto services = run::ReadEndpoints(run_dir);
  if (!services.ok()) return nullptr;
  const std::string numbered = absl::StrFormat("replay_buffer-%02d", shard);
  for (const run::ServiceEndpoint& service : *services) {
    const bool named = service.name == numbered || (shard == 0 && service.name == "replay_buffer");
    if (!named || service.grpc.empty()) continue;
    std::unique_ptr<ReplaySource> source = std::make_unique<Live>(service.grpc, timeout);
    if (source->Info().ok()) return source;
  }
  return nullptr;
}

// A run has one directory per shard; how many shards there are, the directories say.
absl::StatusOr<std::filesystem::path> DirectoryOf(const ReplayPlace& place) {
  if (place.run_dir.empty()) return std::filesystem::path(place.data);
  const std::filesystem::path only = run::ReplayDirectories(place.run_dir, 1)[0];
  const std::filesystem::path numbered =
      run::ReplayDirectories(place.run_dir, place.shard + 2)[place.shard];
  if (std::filesystem::is_directory(numbered)) return numbered;
  if (place.shard == 0) return only;
  return absl::NotFoundError(absl::StrCat("the run has no such shard: ", numbered.string()));
}

// Entries have no priority without a decay: it is the run's, not the store's. An entry whose record
// is damaged is found by Verify; the other calls are kDataLoss then.
absl::StatusOr<std::unique_ptr<ReplaySource>> StoredReplay(
    const std::filesystem::path& directory, const std::optional<replay::Decay>& decay) {
  // Fails early where there is nothing to look into; the store itself opens when it is asked.
  OXBOW_RETURN_IF_ERROR(buffer::ReplayDirectory::OpenForReading(directory).status());
  return std::unique_ptr<ReplaySource>(std::make_unique<Stored>(directory, decay));
}

}  // namespace

absl::StatusOr<OpenedReplay> OpenReplay(const ReplayPlace& place, absl::Duration timeout) {
  namespace fs = std::filesystem;
  if (!place.buffer.empty() + !place.data.empty() + !place.run_dir.empty() != 1) {
    return absl::InvalidArgumentError(
        "name one place to look: runs/NAME, --buffer HOST:PORT or --data DIR");
  }
  OpenedReplay opened;
  OXBOW_ASSIGN_OR_RETURN(const fs::path data, DirectoryOf(place));
  const fs::path config = place.config.empty() ? ConfigBeside(data) : fs::path(place.config);
  if (!config.empty()) {
    OXBOW_ASSIGN_OR_RETURN(opened.config, config::LoadResolved(config));
  }
  if (!place.buffer.empty()) {
    opened.source = std::make_unique<Live>(place.buffer, timeout);
    return opened;
  }
  if (!place.run_dir.empty()) {
    OXBOW_RETURN_IF_ERROR(FindRun(place.run_dir));
    if (opened.config && !config::UsesReplayBuffer(*opened.config) && !fs::exists(data)) {
      return absl::NotFoundError(
          absl::StrCat("this run keeps no replay, its replay.fraction is 0: ", place.run_dir));
    }
    opened.source = LiveOf(place.run_dir, place.shard, std::min(timeout, absl::Seconds(2)));
    if (opened.source != nullptr) return opened;
  }
  OXBOW_ASSIGN_OR_RETURN(
      opened.source,
      StoredReplay(data, opened.config.has_value()
                             ? std::optional(buffer::DecayOf(opened.config->replay()))
                             : std::nullopt));
  return opened;
}

absl::StatusOr<Looked> Look(const ReplayPlace& place, absl::Duration timeout) {
  Looked looked;
  OXBOW_ASSIGN_OR_RETURN(looked.opened, OpenReplay(place, timeout));
  OXBOW_ASSIGN_OR_RETURN(looked.info, looked.source().Info());
  const std::optional<v1::RunConfig>& config = looked.opened.config;
  looked.context.step = looked.info.step();
  looked.context.priority_known = looked.source().live() || config.has_value();
  if (config.has_value()) looked.context.updates = oxbow::config::UpdatesPerStep(*config);
  return looked;
}

absl::Status AddRows(const Looked& looked, const std::string& table, TopRows& rows) {
  for (EntryId after(0);;) {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::ReplayEntry> page,
                           looked.source().Page(table, after));
    if (page.empty()) return absl::OkStatus();
    for (const v1::ReplayEntry& entry : page) rows.Add(RowOf(entry, looked.context));
    after = EntryId(page.back().entry_id());
  }
}

absl::StatusOr<ReplayAudit> AuditReplay(ReplaySource& source, size_t findings_max) {
  return Audit(source, findings_max).Run();
}

std::string AuditText(const ReplayAudit& audit, const std::string& source) {
  std::string text;
  for (const ReplayFinding& finding : audit.findings) {
    absl::StrAppend(&text, "entry ", finding.entry, " (", finding.table, "): ", finding.problem,
                    "\n");
  }
  absl::StrAppend(&text, source, ": ", audit.entries, " entries, ", BytesText(audit.bytes), ", ");
  if (audit.sound()) return absl::StrCat(text, "all sound\n");
  return absl::StrCat(text, audit.damaged,
                      " damaged. Damaged entries leave with time; to be rid of them at once, stop "
                      "the buffer and restore its directory from a copy, or delete it\n");
}

std::string AuditJson(const ReplayAudit& audit, const std::string& source) {
  nlohmann::ordered_json json = {
      {"source", source},         {"sound", audit.sound()},
      {"entries", audit.entries}, {"bytes", audit.bytes},
      {"damaged", audit.damaged}, {"findings", nlohmann::ordered_json::array()}};
  for (const ReplayFinding& finding : audit.findings) {
    json["findings"].push_back({{"entry", std::to_string(finding.entry)},
                                {"table", finding.table},
                                {"problem", finding.problem}});
  }
  return json.dump(2) + "\n";
}

}  // namespace oxbow::cli
