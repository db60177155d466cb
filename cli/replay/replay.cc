// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/replay/replay_entry.h"
#include "cli/replay/replay_rows.h"
#include "cli/replay/replay_source.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "rpc/tls_flags.h"
#include "services/buffer/reshard.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kRowsMax = 100'000;

std::string Heading(const Looked& looked, const std::string& table) {
  uint64_t entries = looked.info.entries();
  uint64_t bytes = looked.info.bytes();
  for (const v1::TableInfo& told : looked.info.tables()) {
    if (told.name() != table) continue;
    entries = told.entries();
    bytes = told.bytes();
  }
  return absl::StrCat(looked.source().name(), looked.source().live() ? " (live)" : " (directory)",
                      ": table ", table, ", ", entries, " entries, ", BytesText(bytes), ", step ",
                      looked.info.step(), "\n");
}

absl::Status List(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const Looked looked, Look(flags.place, flags.timeout()));
  const uint64_t limit = flags.limit == 0 ? kRowsMax : std::min(flags.limit, kRowsMax);
  OXBOW_ASSIGN_OR_RETURN(TopRows top, TopRows::By(flags.sort, flags.reverse, limit));
  OXBOW_RETURN_IF_ERROR(AddRows(looked, flags.table, top));
  const uint64_t seen = top.seen();
  const std::vector<ReplayRow> rows = std::move(top).Take();
  if (flags.json()) {
    nlohmann::ordered_json json = {{"source", looked.source().name()},
                                   {"live", looked.source().live()},
                                   {"table", flags.table},
                                   {"step", looked.info.step()},
                                   {"entries", seen},
                                   {"rows", nlohmann::ordered_json::array()}};
    for (const ReplayRow& row : rows) json["rows"].push_back(RowJson(row));
    std::cout << json.dump(2) << "\n";
    return absl::OkStatus();
  }
  std::cout << Heading(looked, flags.table) << RowsText(rows);
  if (rows.size() < seen) {
    std::cout << "(" << rows.size() << " of " << seen << "; --limit N shows more, 0 all)\n";
  }
  return absl::OkStatus();
}

absl::Status Verify(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const OpenedReplay opened, OpenReplay(flags.place, flags.timeout()));
  OXBOW_ASSIGN_OR_RETURN(const ReplayAudit audit, AuditReplay(*opened.source));
  std::cout << (flags.json() ? AuditJson(audit, opened.source->name())
                             : AuditText(audit, opened.source->name()));
  if (audit.sound()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("damaged entries: ", audit.damaged));
}

void AddPlace(CLI::App& command, ReplayFlags& flags) {
  AddRunDirectory(command, flags.place.run_dir,
                  "directory of a run: its live buffer, or what it left in replay/");
  command.add_option("--shard", flags.place.shard, "of a run: which of its replay buffers")
      ->capture_default_str();
  command.add_option("--buffer", flags.place.buffer, "host:port of a replay_buffer");
  command.add_option("--data", flags.place.data,
                     "--data directory of a replay_buffer that is not running");
  command.add_option("--config", flags.place.config,
                     "resolved config of the run, for decay and staleness; default: beside --data");
  AddTimeout(command, flags.timeout_s, "of one call to a live buffer, seconds");
}

struct ReshardFlags {
  std::vector<std::string> from;
  std::vector<std::string> to;
};

absl::Status ReshardNow(const ReshardFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(
      const buffer::ReshardReport report,
      buffer::Reshard({flags.from.begin(), flags.from.end()}, {flags.to.begin(), flags.to.end()}));
  std::cout << report.entries << " entries, " << BytesText(report.bytes) << ", from "
            << flags.from.size() << " to " << flags.to.size() << " shards";
  if (report.left_out > 0) {
    std::cout << "; left out, of prompts that were on two shards: " << report.left_out;
  }
  std::cout << "\n";
  return absl::OkStatus();
}

void AddReshard(CLI::App& replay, int& exit_code) {
  const auto flags = std::make_shared<ReshardFlags>();
  CLI::App* command =
      replay.add_subcommand("reshard", "Copy the entries of a run to another number of buffers");
  command->footer(
      "The run must not be running. What --from names stays as it is; --to must not be there.\n"
      "Example: oxbow replay reshard --from runs/digits/replay --to "
      "runs/digits/replay-00,runs/digits/replay-01\n"
      "         oxbow train configs/digits.yaml --resume --set services.replay_shards=2");
  command->add_option("--from", flags->from, "all --data directories of the run, in order")
      ->delimiter(',')
      ->required();
  command->add_option("--to", flags->to, "the new ones, in order")->delimiter(',')->required();
  command->callback([flags, &exit_code] { exit_code = Ended("replay", ReshardNow(*flags)); });
}

}  // namespace

void AddReplay(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ReplayFlags>();  // Lives as long as the callbacks below.
  CLI::App* replay = app.add_subcommand("replay", "Look into a replay buffer; changes nothing");
  replay->footer("Example: oxbow replay list runs/digits");
  replay->require_subcommand(1);
  AddReshard(*replay, exit_code);
  const auto add = [&](const char* name, const char* help, const char* footer,
                       absl::Status (*run)(const ReplayFlags&), bool of_one = false) {
    CLI::App* command = replay->add_subcommand(name, help);
    command->footer(footer);
    if (of_one) {
      command->add_option("ENTRY", flags->entry, "id of an entry of any table")->required();
    }
    AddPlace(*command, *flags);
    // One for each: the environment speaks to all commands, also those that were not called.
    const auto tls = std::make_shared<rpc::TlsOptions>();
    rpc::AddTlsFlags(*command, *tls);
    command->callback([flags, tls, run, &exit_code] {
      absl::Status status = rpc::UseTls(TlsOfRun(*tls, flags->place.run_dir)).status();
      if (status.ok()) status = run(*flags);
      exit_code = Ended("replay", status);
    });
    return command;
  };
  CLI::App* list =
      add("list", "A table of entries", "Example: oxbow replay list runs/digits --sort age", List);
  AddFormat(*list, flags->format);
  list->add_option("--table", flags->table, "best, hard_prompts or recent_groups")
      ->capture_default_str();
  list->add_option("--sort", flags->sort, "largest first; id and prompt smallest first")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kRowKeys), std::end(kRowKeys))))
      ->capture_default_str();
  list->add_flag("--reverse", flags->reverse, "the other way round");
  list->add_option("--limit", flags->limit, "rows; 0: all, at most 100000")->capture_default_str();
  CLI::App* show =
      add("show", "Everything of one entry", "Example: oxbow replay show 6172839 runs/digits",
          ShowEntry, /*of_one=*/true);
  AddFormat(*show, flags->format);
  CLI::App* verify =
      add("verify", "Read everything and name what is damaged",
          "Exit code: 0 all sound, 4 something is damaged, 3 nobody answers or a replay_buffer "
          "holds\nthe directory.\nExample: oxbow replay verify --data runs/digits/replay",
          Verify);
  AddFormat(*verify, flags->format);
  CLI::App* exported =
      add("export", "Write one entry as JSON, its picture, and its steps as a PNG strip",
          "Writes DIR/entry_ID.json, DIR/entry_ID.picture.jpg (.png where it is tiny), and the "
          "steps x_i\nfrom left to right as DIR/entry_ID.png.\n"
          "Example: oxbow replay export 6172839 runs/digits --out /tmp",
          ExportEntry, /*of_one=*/true);
  exported->add_option("--out", flags->out, "directory")->capture_default_str();
  exported->add_option("--model", flags->model,
                       "diffusers directory whose autoencoder decodes the latents; without it "
                       "latents of many channels are shown in false colours");
}

}  // namespace oxbow::cli
