// SPDX-License-Identifier: Apache-2.0
// This is the one file that sees the headers of the backends. Those of Gloo are not the ones that
// torch was built with: nothing here may depend on the layout of a Gloo type.
#include "core/parallel/c10d_ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#if OXBOW_HAS_NCCL
#include <c10/cuda/CUDAFunctions.h>
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "core/parallel/bounded_call.h"
#include "core/parallel/communication_clock.h"
#include "core/parallel/network_address.h"
#include "core/parallel/ranks.h"
#include "core/parallel/rendezvous.h"

namespace oxbow::parallel {
namespace {

using GroupPointer = c10::intrusive_ptr<c10d::Backend>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr int64_t kHostBytesMax = int64_t{256} << 20;
constexpr absl::Duration kAbortTime = absl::Seconds(1);
// c10d's own time-out comes after ours, so that the error is ours and names the operation.
constexpr absl::Duration kBackstop = absl::Seconds(5);
constexpr bool kHasNccl = OXBOW_HAS_NCCL;

struct Operation {
  std::string name;
  uint64_t sequence;
  absl::Duration until;  // By the steady clock.
  WorkPointer work;
};

at::Tensor Flat(const at::Tensor& tensor) {
  OXBOW_CHECK(tensor.is_contiguous()) << "a tensor of shape " << tensor.sizes();
  return tensor.detach().view(-1);
}

WorkPointer IssueAllReduce(c10d::Backend& group, const at::Tensor& tensor,
                           c10d::ReduceOp::RedOpType how) {
  std::vector<at::Tensor> tensors = {Flat(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = how;
  return group.allreduce(tensors, options);
}

WorkPointer IssueBroadcast(c10d::Backend& group, const at::Tensor& tensor, int root) {
  OXBOW_CHECK(root >= 0 && root < group.getSize()) << "root " << root << " of " << group.getSize();
  std::vector<at::Tensor> tensors = {Flat(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return group.broadcast(tensors, options);
}

WorkPointer IssueReduce(c10d::Backend& group, const at::Tensor& tensor, int root) {
  OXBOW_CHECK(root >= 0 && root < group.getSize()) << "root " << root << " of " << group.getSize();
  std::vector<at::Tensor> tensors = {Flat(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.rootRank = root;
  return group.reduce(tensors, options);
}

at::Tensor BytesToDevice(std::string_view bytes, int64_t length, at::Device device) {
  at::Tensor host = at::zeros({length}, at::kByte);
  std::memcpy(host.data_ptr(), bytes.data(), bytes.size());
  return host.to(device);
}

std::string BytesToHost(const at::Tensor& bytes, int64_t length) {
  const at::Tensor host = bytes.to(at::kCPU);
  return std::string(static_cast<const char*>(host.const_data_ptr()), static_cast<size_t>(length));
}

absl::Status CheckHostBytes(int64_t bytes) {
  if (bytes <= kHostBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a message to all ranks is too long: ", bytes, " > ", kHostBytesMax, " bytes"));
}

class C10dRanks final : public Ranks {
 public:
  C10dRanks(const JoinOptions& options, at::Device device, GroupPointer group, StorePointer store)
      : rank_(options.rank),
        size_(options.size),
        device_(device),
        timeout_(options.operation_timeout),
        process_goes_on_(options.process_goes_on),
        group_(std::move(group)),
        positions_(std::move(store), options.rank, options.size) {}

  ~C10dRanks() override {
    // A failed group may have a thread inside an operation, and its destructor would wait for that
    // thread. The group is left to the end of the process, or to a thread that waits.
    if (!Failure().ok()) {
      if (process_goes_on_) {
        std::thread([group = std::move(group_)]() mutable { group.reset(); }).detach();
      } else {
        group_.release();
      }
    } else {
      (void)Caught([&] {
        group_->shutdown();
        return absl::OkStatus();
      });
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  at::Device device() const override { return device_; }

  absl::Status AllReduceSum(at::Tensor& tensor) override {
    return Run("AllReduceSum",
               [&] { return IssueAllReduce(*group_, tensor, c10d::ReduceOp::SUM); });
  }
  absl::Status AllReduceMax(at::Tensor& tensor) override {
    return Run("AllReduceMax",
               [&] { return IssueAllReduce(*group_, tensor, c10d::ReduceOp::MAX); });
  }
  std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor& tensor) override;

  absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override;
  absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
    OXBOW_CHECK(output.numel() == size_ * input.numel()) << input.sizes() << output.sizes();
    at::Tensor from = Flat(input);
    at::Tensor to = Flat(output);
    return Run("AllGather", [&] { return group_->_allgather_base(to, from); });
  }
  absl::Status Broadcast(at::Tensor& tensor, int root) override {
    return Run("Broadcast", [&] { return IssueBroadcast(*group_, tensor, root); });
  }
  std::unique_ptr<Pending> StartBroadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<Pending> StartReduceSum(const at::Tensor& tensor, int root) override;
  absl::Status Barrier() override {
    // With every backend, no rank has the sum before all ranks have come.
    const at::Tensor one = at::ones({1}, at::TensorOptions(device_).dtype(at::kFloat));
    return Run("Barrier", [&] { return IssueAllReduce(*group_, one, c10d::ReduceOp::SUM); });
  }

  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override;
  absl::Status BroadcastBytes(std::string& bytes, int root) override;
  CommunicationTime TakeCommunicationTime() override { return communication_->Take(); }
  void Abort(const absl::Status& why) override;

  // Waits for an operation that Start began.
  absl::Status Finish(const Operation& operation);

 private:
  absl::StatusOr<Operation> Start(const char* name, const std::function<WorkPointer()>& issue);
  absl::Status Await(const Operation& operation);
  void NoteEnd(const WorkPointer& work);
  absl::Status Run(const char* name, const std::function<WorkPointer()>& issue) {
    OXBOW_ASSIGN_OR_RETURN(const Operation operation, Start(name, issue));
    return Finish(operation);
  }

  // The first failure, which every later call returns.
  absl::Status Failure() const {
    const absl::MutexLock lock(&mutex_);
    return failure_;
  }
  absl::Status Fail(const Operation& operation, absl::StatusCode code, const std::string& why);
  void AbortGroup();

  const int rank_;
  const int size_;
  const at::Device device_;
  const absl::Duration timeout_;
  const bool process_goes_on_;
  GroupPointer group_;
  Positions positions_;
  uint64_t sequence_ = 0;
  // Shared with what the backend calls at the end of an operation.
  const std::shared_ptr<CommunicationClock> communication_ =
      std::make_shared<CommunicationClock>(Clock::Steady());

  mutable absl::Mutex mutex_;
  absl::CondVar failed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

class PendingOperation final : public Pending {
 public:
  PendingOperation(C10dRanks& ranks, absl::StatusOr<Operation> operation)
      : ranks_(ranks), operation_(std::move(operation)) {}
  absl::Status Wait() override {
    return operation_.ok() ? ranks_.Finish(*operation_) : operation_.status();
  }

 private:
  C10dRanks& ranks_;
  const absl::StatusOr<Operation> operation_;
};

absl::StatusOr<Operation> C10dRanks::Start(const char* name,
                                           const std::function<WorkPointer()>& issue) {
  OXBOW_RETURN_IF_ERROR(Failure());
  Operation operation{
      .name = name, .sequence = ++sequence_, .until = Clock::Steady().Now() + timeout_};
  communication_->StandsStill();
  communication_->Began();
  positions_.Note(operation.sequence, name);
  const at::NoGradGuard no_grad;
  const absl::Status status = Caught([&] {
    operation.work = issue();
    return absl::OkStatus();
  });
  communication_->GoesOn();
  if (status.ok()) NoteEnd(operation.work);
  if (!status.ok()) {
    communication_->Ended();
    return Fail(operation, absl::StatusCode::kUnavailable, std::string(status.message()));
  }
  return operation;
}

std::unique_ptr<Pending> C10dRanks::StartAllReduceSum(const at::Tensor& tensor) {
  return std::make_unique<PendingOperation>(*this, Start("StartAllReduceSum", [&] {
    return IssueAllReduce(*group_, tensor, c10d::ReduceOp::SUM);
  }));
}

std::unique_ptr<Pending> C10dRanks::StartReduceSum(const at::Tensor& tensor, int root) {
  return std::make_unique<PendingOperation>(
      *this, Start("StartReduceSum", [&] { return IssueReduce(*group_, tensor, root); }));
}

std::unique_ptr<Pending> C10dRanks::StartBroadcast(const at::Tensor& tensor, int root) {
  return std::make_unique<PendingOperation>(
      *this, Start("StartBroadcast", [&] { return IssueBroadcast(*group_, tensor, root); }));
}

absl::Status C10dRanks::ReduceScatterSum(const at::Tensor& input, at::Tensor& output) {
  OXBOW_CHECK(input.numel() == size_ * output.numel()) << input.sizes() << output.sizes();
  at::Tensor from = Flat(input);
  at::Tensor to = Flat(output);
  if (!device_.is_cpu()) {
    return Run("ReduceScatterSum", [&] { return group_->_reduce_scatter_base(to, from); });
  }
  // c10d's Gloo makes this an all-reduce, twice the traffic, whose work ends only inside wait().
  // Exchanged parts are added in rank order.
  at::Tensor parts = at::empty_like(from);
  std::vector<int64_t> equal;
  OXBOW_RETURN_IF_ERROR(
      Run("ReduceScatterSum", [&] { return group_->alltoall_base(parts, from, equal, equal); }));
  const at::NoGradGuard no_grad;
  to.zero_();
  for (const at::Tensor& part : parts.chunk(size_)) to.add_(part);
  return absl::OkStatus();
}

// An operation of a GPU ends for its caller in Finish.
void C10dRanks::NoteEnd(const WorkPointer& work) {
  if (!device_.is_cpu()) return;
  work->getFuture()->addCallback(
      [communication = communication_](c10::ivalue::Future&) { communication->Ended(); });
}

absl::Status C10dRanks::Finish(const Operation& operation) {
  communication_->StandsStill();
  absl::Status status = Await(operation);
  communication_->GoesOn();
  if (!device_.is_cpu()) communication_->Ended();
  return status;
}

absl::Status C10dRanks::Await(const Operation& operation) {
  // Polls, because both backends can do that without blocking for ever. Each pause is a small part
  // of the time waited so far.
  const absl::Duration started = Clock::Steady().Now();
  while (!operation.work->isCompleted()) {
    const absl::Duration now = Clock::Steady().Now();
    if (now >= operation.until) {
      return Fail(operation, absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat("not every rank came within ", absl::FormatDuration(timeout_)));
    }
    const absl::Duration pause =
        std::clamp((now - started) / 8, absl::Microseconds(50), absl::Milliseconds(5));
    const absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    failed_.WaitWithTimeout(&mutex_, pause);
  }
  const absl::Status status = Caught([&] {
    if (operation.work->exception()) std::rethrow_exception(operation.work->exception());
    operation.work->wait();  // Orders the caller's stream after the operation's.
    return absl::OkStatus();
  });
  if (status.ok()) return status;
  return Fail(operation, absl::StatusCode::kUnavailable,
              absl::StrCat("a peer is gone: ", std::string(status.message())));
}

absl::Status C10dRanks::Fail(const Operation& operation, absl::StatusCode code,
                             const std::string& why) {
  OXBOW_RETURN_IF_ERROR(Failure());
  const Positions::Laggards behind = positions_.Behind(operation.sequence);
  absl::Status failure(code, absl::StrCat(operation.name, " ", operation.sequence, " on rank ",
                                          rank_, " of ", size_, ": ", why, behind.text));
  NameBehind(behind.ranks, failure);
  {
    const absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    failure_ = failure;
    failed_.SignalAll();
  }
  AbortGroup();
  return failure;
}

void C10dRanks::Abort(const absl::Status& why) {
  {
    const absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    failure_ = Annotate(why, absl::StrCat("rank ", rank_, " of ", size_, " was told to stop"));
    failed_.SignalAll();
  }
  AbortGroup();
}

// Frees a GPU that spins in a kernel of the backend. Gloo has nothing to free.
void C10dRanks::AbortGroup() {
  (void)CallWithin(kAbortTime, "abort", [group = group_] {
    group->abort();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::string>> C10dRanks::GatherBytes(std::string_view mine) {
  const auto long_options = at::TensorOptions(device_).dtype(at::kLong);
  at::Tensor lengths = at::empty({size_}, long_options);
  const at::Tensor length = at::full({1}, static_cast<int64_t>(mine.size()), long_options);
  OXBOW_RETURN_IF_ERROR(AllGather(length, lengths));
  lengths = lengths.to(at::kCPU);
  const int64_t longest = lengths.max().item<int64_t>();
  OXBOW_RETURN_IF_ERROR(CheckHostBytes(longest));
  at::Tensor all = at::empty({size_ * longest}, at::TensorOptions(device_).dtype(at::kByte));
  if (longest > 0) OXBOW_RETURN_IF_ERROR(AllGather(BytesToDevice(mine, longest, device_), all));
  std::vector<std::string> messages;
  for (int rank = 0; rank < size_; ++rank) {
    messages.push_back(
        BytesToHost(all.narrow(0, rank * longest, longest), lengths[rank].item<int64_t>()));
  }
  return messages;
}

absl::Status C10dRanks::BroadcastBytes(std::string& bytes, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(bytes.size()),
                               at::TensorOptions(device_).dtype(at::kLong));
  OXBOW_RETURN_IF_ERROR(Broadcast(length, root));
  const auto total = length.item<int64_t>();
  OXBOW_RETURN_IF_ERROR(CheckHostBytes(total));
  if (total == 0) {
    bytes.clear();
    return absl::OkStatus();
  }
  at::Tensor content = rank_ == root
                           ? BytesToDevice(bytes, total, device_)
                           : at::empty({total}, at::TensorOptions(device_).dtype(at::kByte));
  OXBOW_RETURN_IF_ERROR(Broadcast(content, root));
  bytes = BytesToHost(content, total);
  return absl::OkStatus();
}

absl::Duration BackstopOf(const JoinOptions& options) {
  return options.operation_timeout + kBackstop;
}

// These two make a process group, the only thing in which the backends differ. They block until
// every rank has come, at most about the backstop, and throw what c10d throws.
GroupPointer MakeGlooGroup(const JoinOptions& options, const StorePointer& store) {
  auto gloo =
      c10d::ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(BackstopOf(options)));
  gloo->threads = 1;  // Operations run in the order they were begun.
  if (!options.interface.empty()) {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
  } else {
    const auto local = LocalAddressTowards(options.address);
    TORCH_CHECK(local.ok(), local.status().ToString());
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(*local));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, gloo);
}

#if OXBOW_HAS_NCCL
GroupPointer MakeNcclGroup(const JoinOptions& options, at::Device device,
                           const StorePointer& store) {
  const auto devices = c10::cuda::device_count();
  TORCH_CHECK(device.index() < devices, "no device ", device, ": this machine has ",
              static_cast<int>(devices), " GPUs");
  c10::cuda::set_device(device.index());
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  // NCCL's watchdog would end the process, where an error is wanted: it comes too late for that.
  nccl->timeout = absl::ToChronoMilliseconds(2 * BackstopOf(options) + absl::Seconds(30));
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.size, nccl);
}
#else
GroupPointer MakeNcclGroup(const JoinOptions&, at::Device, const StorePointer&) {
  TORCH_CHECK(false, "this build has no NCCL");
}
#endif

// Changes two things of the whole process. c10d prints what it is about to throw, with a stack, on
// stderr; errors here are one line and returned (TORCH_CPP_LOG_LEVEL turns the printing on again).
// And c10d's send to a store whose host is dead raises SIGPIPE, where an error is wanted.
void PrepareProcess() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 3;
  struct sigaction current {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<at::Device> DeviceOf(const JoinOptions& options) {
  std::optional<at::Device> device;
  (void)Caught([&] {
    device = at::Device(options.device);
    return absl::OkStatus();
  });
  if (!device || !(device->is_cpu() || (device->is_cuda() && device->has_index()))) {
    return absl::InvalidArgumentError("ranks need a device like cpu or cuda:0: " + options.device);
  }
  if (device->is_cuda() && !kHasNccl) {
    return absl::UnimplementedError("this build has no CUDA, build it with -DOXBOW_CUDA=ON: " +
                                    options.device);
  }
  return *device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ranks>> JoinRanks(const JoinOptions& options) {
  OXBOW_CHECK(options.rank >= 0 && options.rank < options.size)
      << "rank " << options.rank << " of " << options.size;
  PrepareProcess();
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, DeviceOf(options));
  OXBOW_ASSIGN_OR_RETURN(const StorePointer store, Meet(options));
  const auto made = std::make_shared<GroupPointer>();  // Shared with a thread that may be left.
  OXBOW_RETURN_IF_ERROR(CallWithin(
      options.join_timeout,
      absl::StrCat("ranks did not connect to each other, says rank ", options.rank),
      [options, device, store, made] {
        *made =
            device.is_cpu() ? MakeGlooGroup(options, store) : MakeNcclGroup(options, device, store);
        // NCCL connects in its first operation, and blocks in it.
        std::vector<at::Tensor> one = {at::ones({1}, at::TensorOptions(device).dtype(at::kFloat))};
        (*made)->allreduce(one)->wait();
        (void)one[0].item<float>();
        return absl::OkStatus();
      },
      options.cancelled));
  return std::make_unique<C10dRanks>(options, device, *made, store);
}

}  // namespace oxbow::parallel
