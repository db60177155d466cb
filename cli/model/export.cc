// SPDX-License-Identifier: Apache-2.0
#include "cli/model/export.h"

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/trained_part.h"
#include "cli/run/work_progress.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "core/model/lora.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"
#include "io/lora_file.h"
#include "io/tensor_torch.h"

namespace oxbow::cli {

namespace {

namespace fs = std::filesystem;

constexpr char kIndex[] = "model_index.json";
constexpr uint64_t kWeightIndexBytesMax = 1 << 20;

absl::Status Failed(const char* what, const fs::path& path, const std::error_code& error) {
  return absl::InternalError(absl::StrCat(what, ": ", error.message(), ": ", path.string()));
}

// A file of a hub's cache is a link to where its bytes are.
absl::Status LinkOrCopy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::path file = fs::canonical(from, error);
  if (error) return Failed("cannot find file", from, error);
  const fs::path temporary = TemporaryOf(to);
  std::error_code ignored;
  fs::create_hard_link(file, temporary, error);
  if (error) {
    error.clear();
    fs::copy_file(file, temporary, error);
  }
  if (!error) fs::rename(temporary, to, error);
  fs::remove(temporary, ignored);  // rename leaves both of two links to one file.
  return error ? Failed("cannot copy file", to, error) : absl::OkStatus();
}

absl::Status AddPart(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) return Failed("cannot create directory", to, error);
  fs::directory_iterator files(from, error);
  if (error) return absl::NotFoundError(absl::StrCat("no such part: ", from.string()));
  for (; files != fs::directory_iterator(); files.increment(error)) {
    if (error) return Failed("cannot list directory", from, error);
    if (!files->is_regular_file(error)) continue;  // Follows links.
    OXBOW_RETURN_IF_ERROR(LinkOrCopy(files->path(), to / files->path().filename()));
  }
  return absl::OkStatus();
}

// Puts the files of all parts that model_index.json of `model` names, but for the part `except`,
// into `out`: hard links where the file system has them, else copies; what is there is replaced.
// model_index.json comes last, so that a cut export is not taken for a model. kNotFound if a part
// is missing. Requires that `out` is not `model`.
absl::Status AddOtherParts(const fs::path& model, const std::string& except, const fs::path& out) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(model / kIndex, kWeightIndexBytesMax));
  const auto index = ParseJson(text);
  if (!index.is_object()) {
    return absl::DataLossError(absl::StrCat("no JSON object: ", (model / kIndex).string()));
  }
  for (const auto& [name, part] : index.items()) {
    // Optional parts that the model has not are [null, null].
    const bool is_part = part.is_array() && part.size() == 2 && part[0].is_string();
    if (!is_part || name == except) continue;
    OXBOW_RETURN_IF_ERROR(AddPart(model / name, out / name));
  }
  return WriteFileAtomically(out / kIndex, text);
}

constexpr std::string_view kWeight = ".weight";

// The share of an adapter that rounding to the base model's type left: 1 - |merged - (W + D)| /
// |D|, over all matrices D that were added.
class Arrival {
 public:
  void Add(const at::Tensor& weight, const at::Tensor& exact, const at::Tensor& stored) {
    const auto square = [](const at::Tensor& difference) {
      return difference.square().sum(at::kDouble).item<double>();
    };
    added_ += square(exact - weight.to(at::kFloat));
    lost_ += square(stored.to(at::kFloat) - exact);
  }
  double share() const { return added_ > 0 ? std::max(0.0, 1 - std::sqrt(lost_ / added_)) : 1; }

 private:
  double added_ = 0;
  double lost_ = 0;
};

// One after the other what the merged file holds, from the mapped base model and the trained part.
class Merger {
 public:
  // With `float32` all floating-point tensors are.
  Merger(io::WeightFiles base, const TrainedPart& trained, bool float32)
      : base_(std::move(base)), trained_(trained), float32_(float32) {}

  // The tensors of the merged file. kFailedPrecondition names what the base model has not, or in
  // another shape.
  absl::StatusOr<std::map<std::string, io::TensorHeader>> Headers() const {
    std::map<std::string, io::TensorHeader> headers = base_.headers();
    OXBOW_RETURN_IF_ERROR(CheckFits(trained_, headers, trained_.config.model().path()));
    if (!trained_.lora()) {
      for (const auto& [name, tensor] : trained_.tensors) {
        headers[name] = {.dtype = tensor.dtype, .shape = tensor.shape};
      }
    }
    for (auto& [name, header] : headers) {
      if (Widens(header.dtype)) header.dtype = io::DType::kF32;
    }
    return headers;
  }

  absl::StatusOr<std::string> BytesOf(const std::string& name) {
    if (!trained_.lora()) {
      const auto found = trained_.tensors.find(name);
      if (found != trained_.tensors.end()) {
        OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, io::ToTorch(found->second));
        return Bytes(tensor);
      }
    }
    const io::TensorHeader& header = base_.headers().at(name);
    const std::string module =
        name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
    const auto down = trained_.tensors.find(module + kLoraDown);
    if (trained_.lora() && down != trained_.tensors.end()) {
      OXBOW_ASSIGN_OR_RETURN(const at::Tensor a, io::ToTorch(down->second));
      OXBOW_ASSIGN_OR_RETURN(const at::Tensor b,
                             io::ToTorch(trained_.tensors.at(module + kLoraUp)));
      return Merged(io::CopyOf(header.dtype, header.shape, base_.BytesOf(name)), a, b);
    }
    if (!Widens(header.dtype)) return std::string(base_.BytesOf(name));
    return Bytes(io::CopyOf(header.dtype, header.shape, base_.BytesOf(name)));
  }

  // Empty where nothing worth a word was lost.
  std::string Said() const {
    static constexpr double kWhole = 0.995;
    if (arrival_.share() >= kWhole) return "";
    return absl::StrFormat(
        "merged: %.0f %% of the adapter arrived, the base model's type rounds off the rest; "
        "--dtype f32 keeps it",
        100 * arrival_.share());
  }

 private:
  bool Widens(io::DType dtype) const {
    return float32_ && (dtype == io::DType::kBF16 || dtype == io::DType::kF16);
  }

  std::string Bytes(const at::Tensor& tensor) const {
    return io::FromTorch(float32_ && tensor.is_floating_point() ? tensor.to(at::kFloat) : tensor)
        .data;
  }

  std::string Merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
    const v1::LoraConfig& lora = trained_.config.model().lora();
    const double scale = lora.alpha() / static_cast<double>(lora.rank());
    const at::Tensor exact = model::MergedWeight(weight.to(at::kFloat), a, b, scale);
    const at::Tensor stored = float32_ ? exact : exact.to(weight.scalar_type());
    arrival_.Add(weight, exact, stored);
    return io::FromTorch(stored).data;
  }

  const io::WeightFiles base_;
  const TrainedPart& trained_;
  const bool float32_;
  Arrival arrival_;
};

absl::Status WriteMerged(const fs::path& out, const TrainedPart& trained, bool float32,
                         std::string& said) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(trained.config.model().path()));
  const io::DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(io::WeightFiles base, io::OpenComponentWeights(transformer));
  Merger merger(std::move(base), trained, float32);
  OXBOW_ASSIGN_OR_RETURN(const auto headers, merger.Headers());
  const fs::path folder = out / "transformer";
  OXBOW_RETURN_IF_ERROR(MakeDirectories(folder));
  OXBOW_RETURN_IF_ERROR(io::WriteSafetensorsPiecewise(
      folder / "diffusion_pytorch_model.safetensors", headers, trained.provenance,
      [&](const std::string& name) { return merger.BytesOf(name); }));
  said = merger.Said();
  if (const fs::path own = io::FindGraphFiles(transformer).own; !own.empty()) {
    OXBOW_RETURN_IF_ERROR(LinkOrCopy(own, folder / own.filename()));
  }
  return WriteFileAtomically(folder / "config.json", transformer.config_json);
}

absl::Status CheckWhole(const ExportRequest& request, const fs::path& out,
                        const TrainedPart& trained) {
  if (!request.whole_model) return absl::OkStatus();
  if (request.format != "merged") {
    return absl::InvalidArgumentError(
        absl::StrCat("--whole-model needs --format merged, got ", request.format));
  }
  std::error_code ignored;
  if (!fs::equivalent(out, trained.config.model().path(), ignored)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the base model is not written over; choose another --out: ", out.string()));
}

// ComfyUI's names depend on the class of the base model, and joined modules on its shapes.
absl::Status WriteComfy(const fs::path& out, const TrainedPart& trained) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(trained.config.model().path()));
  const io::DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(const auto base, io::ReadComponentHeaders(transformer));
  return io::WriteComfyLora(out, trained.config.run().name(), transformer.class_name, base,
                            AdapterOf(trained));
}

}  // namespace

absl::StatusOr<ExportedFiles> ExportRun(const ExportRequest& request) {
  ExportedFiles files{.directory = request.out.empty() ? request.run / "export" / request.format
                                                       : request.out};
  const fs::path& out = files.directory;
  OXBOW_RETURN_IF_ERROR(CheckPlace(out, /*folder=*/true));
  OXBOW_ASSIGN_OR_RETURN(const TrainedPart trained,
                         ReadTrainedPart(request.run, request.checkpoint, request.raw));
  const bool whole =
      request.format == "merged" || (request.format == "diffusers" && !trained.lora());
  if (!whole && !trained.lora()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run trained all weights and has no adapter; use --format merged: ", request.format));
  }
  OXBOW_RETURN_IF_ERROR(CheckWhole(request, out, trained));
  if (request.float32 && !whole) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dtype needs --format merged (adapters are float32), got ", request.format));
  }
  absl::Status status;
  if (whole) {
    status = WriteMerged(out, trained, request.float32, files.said);
    if (status.ok() && request.whole_model) {
      status = AddOtherParts(trained.config.model().path(), "transformer", out);
    }
  } else if (request.format == "diffusers") {
    status = io::WriteDiffusersLora(out, AdapterOf(trained));
  } else if (request.format == "peft") {
    status = io::WritePeftLora(out, AdapterOf(trained));
  } else if (request.format == "comfyui") {
    status = WriteComfy(out, trained);
  } else {
    status = absl::InvalidArgumentError("unknown format: " + request.format);
  }
  if (!status.ok()) return status;
  return files;
}

void AddExport(CLI::App& app, int& exit_code) {
  const auto request = std::make_shared<ExportRequest>();
  CLI::App* const command = app.add_subcommand(kExport.name, kExport.says);
  command->footer(
      "Formats: diffusers  pytorch_lora_weights.safetensors, or transformer/ of a full fine-tune\n"
      "         peft       adapter_model.safetensors and adapter_config.json\n"
      "         comfyui    RUN.safetensors for models/loras\n"
      "         merged     transformer/ with the adapter added to the base model's weights\n"
      "Example: oxbow export runs/sd35m --format diffusers --out adapters/sd35m");
  AddRunDirectory(*command, request->run)->required();
  command->add_option("--format", request->format, "of the files")
      ->required()
      ->check(CLI::IsMember({"diffusers", "peft", "comfyui", "merged"}));
  command->add_option("--out", request->out, "directory (default: RUN_DIR/export/FORMAT)");
  command->add_option("--checkpoint,--step", request->checkpoint, kCheckpointHelp);
  command->add_flag("--raw", request->raw, "the last weights, not their running average");
  command->add_flag("--whole-model", request->whole_model,
                    "with merged: the model's other parts beside the transformer, so that the "
                    "directory loads as a whole");
  command
      ->add_option_function<std::string>(
          "--dtype", [request](const std::string& dtype) { request->float32 = dtype == "f32"; },
          "of merged weights: base (the base model's, the default) or f32, which rounds nothing")
      ->check(CLI::IsMember({"base", "f32"}));
  command->callback([request, &exit_code] {
    auto progress = std::make_unique<WorkProgress>("export");
    progress->Begin("reading and writing weights");
    const absl::StatusOr<ExportedFiles> written = ExportRun(*request);
    progress.reset();
    exit_code = Ended("export", written.status());
    if (!written.ok()) return;
    if (!written->said.empty()) std::cerr << "oxbow export: " << written->said << "\n";
    std::cout << written->directory.string() << "\n";
  });
}

}  // namespace oxbow::cli
