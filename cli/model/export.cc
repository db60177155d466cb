#include "cli/model/export.h"

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/trained_part.h"
#include "core/model/lora.h"
#include "io/diffusers_directory.h"
#include "io/lora_file.h"
#include "io/tensor_torch.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

io::LoraExport AdapterOf(const TrainedPart& trained) {
  const v1::LoraConfig& lora = trained.config.model().lora();
  return {.tensors = trained.tensors,
          .rank = lora.rank(),
          .alpha = lora.alpha(),
          .targets = {lora.targets().begin(), lora.targets().end()},
          .base_model = trained.config.model().path(),
          .provenance = trained.provenance};
}

// One after the other what the merged file holds, from the mapped base model and the trained part.
class Merger {
 public:
  Merger(io::WeightFiles base, const TrainedPart& trained)
      : base_(std::move(base)), trained_(trained), adapter_(AdapterOf(trained)) {}

  // The tensors of the merged file. kFailedPrecondition names what the base model has not, or in
  // another shape.
  absl::StatusOr<std::map<std::string, io::TensorHeader>> Headers() const {
    std::map<std::string, io::TensorHeader> headers = base_.headers();
    if (trained_.lora()) {
      OXBOW_RETURN_IF_ERROR(io::CheckLora(adapter_));
      for (const auto& [name, down] : trained_.tensors) {
        if (!name.ends_with(kDown)) continue;
        const std::string module = name.substr(0, name.size() - kDown.size());
        const io::TensorBytes& up = trained_.tensors.at(absl::StrCat(module, std::string(kUp)));
        OXBOW_RETURN_IF_ERROR(
            CheckInBase(absl::StrCat(module, std::string(kWeight)), {up.shape[0], down.shape[1]}));
      }
      return headers;
    }
    for (const auto& [name, tensor] : trained_.tensors) {
      OXBOW_RETURN_IF_ERROR(CheckInBase(name, tensor.shape));
      headers[name] = {.dtype = tensor.dtype, .shape = tensor.shape};
    }
    return headers;
  }

  absl::StatusOr<std::string> BytesOf(const std::string& name) const {
    if (!trained_.lora()) {
      const auto found = trained_.tensors.find(name);
      return found == trained_.tensors.end() ? std::string(base_.BytesOf(name))
                                             : found->second.data;
    }
    const std::string module =
        name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
    const auto down = trained_.tensors.find(absl::StrCat(module, std::string(kDown)));
    if (down == trained_.tensors.end()) return std::string(base_.BytesOf(name));
    const io::TensorHeader& header = base_.headers().at(name);
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor a, io::ToTorch(down->second));
    OXBOW_ASSIGN_OR_RETURN(
        const at::Tensor b,
        io::ToTorch(trained_.tensors.at(absl::StrCat(module, std::string(kUp)))));
    const at::Tensor merged =
        model::MergedWeight(io::CopyOf(header.dtype, header.shape, base_.BytesOf(name)), a, b,
                            adapter_.alpha / static_cast<double>(adapter_.rank));
    return io::FromTorch(merged).data;
  }

 private:
  static constexpr std::string_view kDown = ".lora_A.weight";
  static constexpr std::string_view kUp = ".lora_B.weight";

  absl::Status CheckInBase(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto found = base_.headers().find(name);
    if (found != base_.headers().end() && found->second.shape == shape) return absl::OkStatus();
    const std::string there =
        found == base_.headers().end()
            ? "no such tensor"
            : absl::StrCat("shape [", absl::StrJoin(found->second.shape, ","), "]");
    return absl::FailedPreconditionError(absl::StrCat(
        "the run's weights do not fit the base model at ", trained_.config.model().path(),
        ", which has ", there, ": ", name, " [", absl::StrJoin(shape, ","), "]"));
  }

  const io::WeightFiles base_;
  const TrainedPart& trained_;
  const io::LoraExport adapter_;
};

absl::Status WriteMerged(const fs::path& out, const TrainedPart& trained) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(trained.config.model().path()));
  const io::DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(io::WeightFiles base, io::OpenComponentWeights(transformer));
  const Merger merger(std::move(base), trained);
  OXBOW_ASSIGN_OR_RETURN(const auto headers, merger.Headers());
  const fs::path folder = out / "transformer";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot create directory: ", error.message(), ": ", folder.string()));
  }
  OXBOW_RETURN_IF_ERROR(io::WriteSafetensorsPiecewise(
      folder / "diffusion_pytorch_model.safetensors", headers, trained.provenance,
      [&](const std::string& name) { return merger.BytesOf(name); }));
  return WriteFileAtomically(folder / "config.json", transformer.config_json);
}

// ComfyUI's names depend on the class of the base model.
absl::Status WriteComfy(const fs::path& out, const TrainedPart& trained) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(trained.config.model().path()));
  return io::WriteComfyLora(out, trained.config.run().name(),
                            components.at("transformer").class_name, AdapterOf(trained));
}

}  // namespace

absl::StatusOr<fs::path> ExportRun(const ExportRequest& request) {
  OXBOW_ASSIGN_OR_RETURN(const TrainedPart trained,
                         ReadTrainedPart(request.run, request.step, request.raw));
  const fs::path out = request.out.empty() ? request.run / "export" / request.format : request.out;
  const bool whole =
      request.format == "merged" || (request.format == "diffusers" && !trained.lora());
  if (!whole && !trained.lora()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run trained all weights and has no adapter; use --format merged: ", request.format));
  }
  absl::Status status;
  if (whole) {
    status = WriteMerged(out, trained);
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
  return out;
}

void AddExport(CLI::App& app, int& exit_code) {
  struct Flags {
    ExportRequest request;
    uint64_t step = 0;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command =
      app.add_subcommand("export", "Write a run's weights as files that other tools load");
  command->footer(
      "Formats: diffusers  pytorch_lora_weights.safetensors, or transformer/ of a full fine-tune\n"
      "         peft       adapter_model.safetensors and adapter_config.json\n"
      "         comfyui    RUN.safetensors for models/loras\n"
      "         merged     transformer/ with the adapter added to the base model's weights\n"
      "Example: oxbow export runs/sd35m --format diffusers --out adapters/sd35m");
  command->add_option("RUN_DIR", flags->request.run, "the run's directory")->required();
  command->add_option("--format", flags->request.format, "of the files")
      ->required()
      ->check(CLI::IsMember({"diffusers", "peft", "comfyui", "merged"}));
  command->add_option("--out", flags->request.out, "directory (default: RUN_DIR/export/FORMAT)");
  CLI::Option* const step =
      command->add_option("--step", flags->step, "of a checkpoint (default: the newest)");
  command->add_flag("--raw", flags->request.raw, "the last weights, not their running average");
  command->callback([flags, step, &exit_code] {
    if (step->count() > 0) flags->request.step = flags->step;
    const absl::StatusOr<std::filesystem::path> written = ExportRun(flags->request);
    exit_code = ExitCodeOf(written.status());
    if (written.ok()) {
      std::cout << written->string() << "\n";
    } else {
      std::cerr << "oxbow export: " << written.status().message() << "\n";
    }
  });
}

}  // namespace oxbow::cli
