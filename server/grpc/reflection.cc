#include "server/grpc/reflection.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "server/api/api.h"
#include "server/grpc/grpc_status.h"

namespace snug::server {
namespace {

// Whoever asks what there is keeps his call open for as long as he likes. Of everybody together.
constexpr int kMostReflectionCalls = 16;
constexpr const char* kServices[] = {
    "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "snug.v1.FineTuning"};

using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using ReflectionRequest = grpc::reflection::v1alpha::ServerReflectionRequest;
using ReflectionResponse = grpc::reflection::v1alpha::ServerReflectionResponse;

void SayNotFound(const char* what, ReflectionResponse& response) {
  auto& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
  error.set_error_message(absl::StrCat(what, " not found."));
}

// The file, then all that it imports, each of them once.
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& added,
             ReflectionResponse& response) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto content;
  file.CopyTo(&content);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(
      content.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, response);
}

void SayFile(const FileDescriptor* file, const char* what, ReflectionResponse& response) {
  std::set<const FileDescriptor*> added;
  if (file == nullptr)
    SayNotFound(what, response);
  else
    AddFile(*file, added, response);
}

// Null: there is none.
const FileDescriptor* FileOfExtension(const std::string& type_name, int number) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(type_name);
  const FieldDescriptor* field =
      type == nullptr ? nullptr : pool.FindExtensionByNumber(type, number);
  return field == nullptr ? nullptr : field->file();
}

void SayExtensions(const std::string& type_name, ReflectionResponse& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(type_name);
  if (type == nullptr) return SayNotFound("Type", response);
  std::vector<const FieldDescriptor*> fields;
  pool.FindAllExtensions(type, &fields);
  auto& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type_name);
  for (const FieldDescriptor* field : fields) numbers.add_extension_number(field->number());
}

void SayServices(ReflectionResponse& response) {
  for (const char* name : kServices)
    response.mutable_list_services_response()->add_service()->set_name(name);
}

ReflectionResponse AnswerTo(const ReflectionRequest& request) {
  ReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case ReflectionRequest::kFileByFilename:
      SayFile(pool.FindFileByName(request.file_by_filename()), "File", response);
      break;
    case ReflectionRequest::kFileContainingSymbol:
      SayFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), "Symbol", response);
      break;
    case ReflectionRequest::kFileContainingExtension: {
      const auto& wanted = request.file_containing_extension();
      SayFile(FileOfExtension(wanted.containing_type(), wanted.extension_number()), "Extension",
              response);
      break;
    }
    case ReflectionRequest::kAllExtensionNumbersOfType:
      SayExtensions(request.all_extension_numbers_of_type(), response);
      break;
    case ReflectionRequest::kListServices:
      SayServices(response);
      break;
    case ReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(
          static_cast<int>(absl::StatusCode::kInvalidArgument));
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return response;
}

// Reading and answering follow one another: the step that sees the end finishes the call.
class ReflectionCall : public CountedCall {
 public:
  // `calls` counts it already.
  ReflectionCall(std::atomic<int>& calls, CancelHook on_cancel)
      : CountedCall(std::move(on_cancel)), calls_(calls) {
    StartRead(&in_);
  }
  ~ReflectionCall() override { --calls_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    ReflectionRequest request;
    const absl::Status read = Decode(in_, kMaxRequestBytes, request);
    if (!read.ok()) return Finish(ToGrpcStatus(read));
    out_ = Encode(AnswerTo(request));
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&in_);
  }

  std::atomic<int>& calls_;
  grpc::ByteBuffer in_, out_;
};

}  // namespace

grpc::ServerGenericBidiReactor* Reflection::Answer(CancelHook on_cancel) {
  if (calls_.fetch_add(1) < kMostReflectionCalls)
    return new ReflectionCall(calls_, std::move(on_cancel));
  --calls_;
  return new EndedCall(ToGrpcStatus(absl::ResourceExhaustedError(absl::StrCat(
                           kMostReflectionCalls, " calls of reflection are open already"))),
                       std::move(on_cancel));
}

}  // namespace snug::server
