// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/plan/bytes_text.h"
#include "cli/replay/replay_audit.h"
#include "cli/replay/replay_entry_text.h"
#include "cli/replay/replay_rows.h"
#include "cli/replay/replay_source.h"
#include "cli/replay/replay_strip.h"
#include "cli/run_option.h"
#include "config/validate.h"
#include "io/diffusers_directory.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "rpc/convert.h"
#include "rpc/tls_flags.h"
#include "run/loaded_model.h"
#include "services/buffer/reshard.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kRowsMax = 100'000;

struct ReplayFlags {
  ReplayPlace place;
  double timeout_s = 10;
  std::string format = "text";
  std::string table = "best";
  std::string sort = "reward";
  bool reverse = false;
  uint64_t limit = 50;
  uint64_t entry = 0;
  std::string out = ".";
  std::string model;

  bool json() const { return format == "json"; }
};

// The buffer that was opened, with what its rows are computed with.
struct Looked {
  OpenedReplay opened;
  v1::InfoResponse info;
  RowContext context;

  ReplaySource& source() const { return *opened.source; }
};

absl::StatusOr<OpenedReplay> Open(const ReplayFlags& flags) {
  const int named = static_cast<int>(!flags.place.buffer.empty()) +
                    static_cast<int>(!flags.place.data.empty()) +
                    static_cast<int>(!flags.place.run_dir.empty());
  if (named != 1) {
    return absl::InvalidArgumentError(
        "name one place to look: runs/NAME, --buffer HOST:PORT or --data DIR");
  }
  return OpenReplay(flags.place, absl::Seconds(flags.timeout_s));
}

absl::StatusOr<Looked> Look(const ReplayFlags& flags) {
  Looked looked;
  OXBOW_ASSIGN_OR_RETURN(looked.opened, Open(flags));
  OXBOW_ASSIGN_OR_RETURN(looked.info, looked.source().Info());
  const std::optional<v1::RunConfig>& config = looked.opened.config;
  looked.context.step = looked.info.step();
  looked.context.priority_known = looked.source().live() || config.has_value();
  if (config.has_value()) {
    looked.context.updates = oxbow::config::UpdatesPerStep(*config);
  }
  return looked;
}

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
  OXBOW_ASSIGN_OR_RETURN(const Looked looked, Look(flags));
  const uint64_t limit = flags.limit == 0 ? kRowsMax : std::min(flags.limit, kRowsMax);
  OXBOW_ASSIGN_OR_RETURN(TopRows top, TopRows::By(flags.sort, flags.reverse, limit));
  EntryId after;
  while (true) {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::ReplayEntry> page,
                           looked.source().Page(flags.table, after));
    if (page.empty()) break;
    for (const v1::ReplayEntry& entry : page) top.Add(RowOf(entry, looked.context));
    after = EntryId(page.back().entry_id());
  }
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

struct ShownEntry {
  v1::ReplayEntry entry;
  ReplayRow row;
  std::vector<LatentFacts> latents;
};

absl::StatusOr<ShownEntry> ReadEntry(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const Looked looked, Look(flags));
  ShownEntry shown;
  OXBOW_ASSIGN_OR_RETURN(shown.entry, looked.source().Read(EntryId(flags.entry)));
  shown.row = RowOf(shown.entry, looked.context);
  const auto latents = LatentsOf(shown.entry);
  if (latents.ok()) {
    shown.latents = FactsOf(*latents, shown.entry);
  } else if (!absl::IsFailedPrecondition(latents.status())) {
    return latents.status();
  }
  return shown;
}

absl::Status Show(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ShownEntry shown, ReadEntry(flags));
  if (flags.json()) {
    std::cout << EntryJson(shown.entry, shown.row, shown.latents).dump(2) << "\n";
  } else {
    std::cout << EntryText(shown.entry, shown.row, shown.latents);
  }
  return absl::OkStatus();
}

absl::Status Verify(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const OpenedReplay opened, Open(flags));
  OXBOW_ASSIGN_OR_RETURN(const ReplayAudit audit, AuditReplay(*opened.source));
  std::cout << (flags.json() ? AuditJson(audit, opened.source->name())
                             : AuditText(audit, opened.source->name()));
  if (audit.sound()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("damaged entries: ", audit.damaged));
}

// The stored arrays in their own types: `latents`, and `conditioning.PART` for each part. False if
// there are none.
absl::StatusOr<bool> WriteArrays(const v1::ReplayEntry& entry, const std::string& path) {
  io::Safetensors file;
  if (!entry.trajectory().latents().data().empty()) {
    OXBOW_ASSIGN_OR_RETURN(file.tensors["latents"],
                           rpc::TensorFromProto(entry.trajectory().latents()));
  }
  for (const rpc::PartHeld& part : rpc::PartsOf(entry.conditioning())) {
    OXBOW_ASSIGN_OR_RETURN(file.tensors["conditioning." + part.name],
                           rpc::TensorFromProto(*part.tensor));
  }
  if (file.tensors.empty()) return false;
  OXBOW_RETURN_IF_ERROR(io::WriteSafetensors(path, file));
  return true;
}

// The decoder of a model directory; where that has no autoencoder, the latent is the image.
absl::StatusOr<std::unique_ptr<model::ImageDecoder>> DecoderOf(const std::string& model,
                                                               int64_t channels) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(model));
  OXBOW_ASSIGN_OR_RETURN(run::LoadedDecoder loaded,
                         run::LoadDecoder(components, channels, at::kCPU));
  return std::move(loaded.decoder);
}

absl::Status Export(const ReplayFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const ShownEntry shown, ReadEntry(flags));
  std::error_code error;
  std::filesystem::create_directories(flags.out, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make directory: ", error.message(), ": ", flags.out));
  }
  const std::string stem =
      (std::filesystem::path(flags.out) / absl::StrCat("entry_", flags.entry)).string();
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(
      stem + ".json", EntryJson(shown.entry, shown.row, shown.latents).dump(2) + "\n"));
  std::cout << stem << ".json\n";
  OXBOW_ASSIGN_OR_RETURN(const bool arrays, WriteArrays(shown.entry, stem + ".safetensors"));
  if (arrays) std::cout << stem << ".safetensors\n";
  const std::string& picture = shown.entry.trajectory().picture();
  if (const auto facts = io::FactsOfPicture(picture); facts.has_value()) {
    const std::string file = absl::StrCat(stem, ".picture.", facts->extension);
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(file, picture));
    std::cout << file << "\n";
  }
  if (shown.latents.empty()) {
    std::cout << "(no latents that could be drawn)\n";
    return absl::OkStatus();
  }
  std::unique_ptr<model::ImageDecoder> decoder;
  if (!flags.model.empty()) {
    const int64_t channels = shown.entry.trajectory().latents().shape(1);
    OXBOW_ASSIGN_OR_RETURN(decoder, DecoderOf(flags.model, channels));
  }
  OXBOW_ASSIGN_OR_RETURN(const Image8 strip, StripOf(shown.entry, decoder.get()));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(stem + ".png", io::EncodePng(strip)));
  std::cout << stem << ".png\n";
  return absl::OkStatus();
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
  command.add_option("--timeout", flags.timeout_s, "of one call to a live buffer, seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddFormat(CLI::App& command, ReplayFlags& flags) {
  command.add_option("--format", flags.format)
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
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
  command->callback([flags, &exit_code] {
    const absl::Status status = ReshardNow(*flags);
    if (!status.ok()) std::cerr << "oxbow replay: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
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
      if (!status.ok()) std::cerr << "oxbow replay: " << status.message() << "\n";
      exit_code = ExitCodeOf(status);
    });
    return command;
  };
  CLI::App* list =
      add("list", "A table of entries", "Example: oxbow replay list runs/digits --sort age", List);
  AddFormat(*list, *flags);
  list->add_option("--table", flags->table, "best, hard_prompts or recent_groups")
      ->capture_default_str();
  list->add_option("--sort", flags->sort, "largest first; id and prompt smallest first")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kRowKeys), std::end(kRowKeys))))
      ->capture_default_str();
  list->add_flag("--reverse", flags->reverse, "the other way round");
  list->add_option("--limit", flags->limit, "rows; 0: all, at most 100000")->capture_default_str();
  CLI::App* show = add("show", "Everything of one entry",
                       "Example: oxbow replay show 6172839 runs/digits", Show, /*of_one=*/true);
  AddFormat(*show, *flags);
  CLI::App* verify =
      add("verify", "Read everything and name what is damaged",
          "Exit code: 0 all sound, 4 something is damaged, 3 nobody answers or a replay_buffer "
          "holds\nthe directory.\nExample: oxbow replay verify --data runs/digits/replay",
          Verify);
  AddFormat(*verify, *flags);
  CLI::App* exported =
      add("export", "Write one entry as JSON, its picture, and its steps as a PNG strip",
          "Writes DIR/entry_ID.json, DIR/entry_ID.picture.jpg (.png where it is tiny), and the "
          "steps x_i\nfrom left to right as DIR/entry_ID.png.\n"
          "Example: oxbow replay export 6172839 runs/digits --out /tmp",
          Export, /*of_one=*/true);
  exported->add_option("--out", flags->out, "directory")->capture_default_str();
  exported->add_option("--model", flags->model,
                       "diffusers directory whose autoencoder decodes the latents; without it "
                       "latents of many channels are shown in false colours");
}

}  // namespace oxbow::cli
