// vLLM and llama.cpp hold a pair of matrices per module and one scale, alpha / rank: the job's
// report of readers says what is beyond that for vLLM, which knows rsLoRA's scale, too; llama.cpp
// does not. Where the adapter is merged, the merged model is what is served.
#include "client/serving.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/table.h"

namespace snug::client {
namespace {

constexpr char kBase[] = "BASE";  // What a base is called that is another job's output.
constexpr char kRank[] = "--max-lora-rank ";

std::string PythonText(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// Names that files, vLLM and Ollama all take.
std::string ServedName(const v1::Job& job) {
  std::string name;
  for (const char c : absl::AsciiStrToLower(job.display_name())) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? c : '-';
  }
  if (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? absl::AsciiStrToLower(job.id()) : name;
}

bool IsAdapter(const v1::Job& job) { return job.spec().method() != v1::JobSpec::METHOD_FULL; }

bool IsMerged(const v1::Job& job) {
  return IsAdapter(job) && job.spec().merge() && job.output().merge_error().empty();
}

const v1::ReaderReport* Vllm(const v1::Job& job) {
  for (const v1::ReaderReport& report : job.output().readers())
    if (report.reader() == "vLLM") return &report;
  return nullptr;
}

// Only code that comes with the model computes it.
bool IsReversible(const v1::Job& job) {
  const v1::ReaderReport* vllm = Vllm(job);
  return !job.spec().reversible().empty() ||
         (vllm != nullptr && absl::StrContains(vllm->notes(), "reversible_"));
}

const char* ClassOf(v1::JobSpec::Task task) {
  switch (task) {
    case v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION:
      return "AutoModelForSequenceClassification";
    case v1::JobSpec::TASK_TOKEN_CLASSIFICATION:
      return "AutoModelForTokenClassification";
    case v1::JobSpec::TASK_MASKED_LM:
      return "AutoModelForMaskedLM";
    case v1::JobSpec::TASK_SEQ2SEQ_LM:
      return "AutoModelForSeq2SeqLM";
    case v1::JobSpec::TASK_IMAGE_CLASSIFICATION:
      return "AutoModelForImageClassification";
    default:
      return "AutoModelForCausalLM";
  }
}

// What the base's head is made with.
std::string BaseArguments(const v1::JobSpec& spec) {
  std::string arguments;
  if (spec.num_labels() > 0) absl::StrAppend(&arguments, ", num_labels=", spec.num_labels());
  if (!spec.problem_type().empty())
    absl::StrAppend(&arguments, ", problem_type=", PythonText(spec.problem_type()));
  if (spec.task() == v1::JobSpec::TASK_IMAGE_CLASSIFICATION)
    arguments += ", ignore_mismatched_sizes=True";
  return arguments;
}

std::string BaseOf(const v1::Job& job) {
  return absl::StartsWith(job.spec().model(), "/") ? job.spec().model() : kBase;
}

Serving VllmOfModel(const std::string& model, const std::string& name) {
  return {"vLLM", {absl::StrCat("vllm serve ", ShellWord(model), " --served-model-name ", name)}};
}

Serving VllmOfAdapter(const v1::Job& job, const std::string& folder) {
  const std::string& notes = Vllm(job)->notes();
  std::string rank;
  if (const size_t at = notes.find(kRank); at != std::string::npos)
    rank = absl::StrCat(" ", notes.substr(at));
  return {"vLLM",
          {absl::StrCat("vllm serve ", ShellWord(BaseOf(job)), " --enable-lora", rank,
                        " --lora-modules ", ShellWord(ServedName(job) + "=" + folder))}};
}

std::string Converts(const std::string& model, const std::string& gguf) {
  return absl::StrCat("python convert_hf_to_gguf.py ", ShellWord(model), " --outfile ", gguf);
}

void AddOllama(const std::string& name, const std::string& modelfile, std::vector<Serving>& all) {
  all.push_back(
      {"Ollama, from llama.cpp's files",
       {absl::StrCat("printf '", modelfile, "' > Modelfile"),
        absl::StrCat("ollama create ", name, " -f Modelfile"), absl::StrCat("ollama run ", name)}});
}

void AddModel(const std::string& model, const std::string& name, std::vector<Serving>& all) {
  const std::string gguf = name + ".gguf";
  all.push_back(VllmOfModel(model, name));
  all.push_back({"llama.cpp", {Converts(model, gguf), absl::StrCat("llama-server -m ", gguf)}});
  AddOllama(name, absl::StrCat("FROM ./", gguf, "\\n"), all);
}

void AddAdapter(const v1::Job& job, const std::string& folder, std::vector<Serving>& all) {
  const v1::ReaderReport* vllm = Vllm(job);
  if (vllm == nullptr || !vllm->loads()) return;
  all.push_back(VllmOfAdapter(job, folder));
  if (job.spec().lora().use_rslora() || job.spec().added_tokens_size() > 0) return;
  const std::string name = ServedName(job), base = BaseOf(job);
  const std::string base_gguf = name + "-base.gguf", gguf = name + "-adapter.gguf";
  all.push_back({"llama.cpp",
                 {Converts(base, base_gguf),
                  absl::StrCat("python convert_lora_to_gguf.py ", ShellWord(folder), " --base ",
                               ShellWord(base), " --outfile ", gguf),
                  absl::StrCat("llama-server -m ", base_gguf, " --lora ", gguf)}});
  AddOllama(name, absl::StrCat("FROM ./", base_gguf, "\\nADAPTER ./", gguf, "\\n"), all);
}

}  // namespace

std::string ShellWord(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("/._-+=:@%,", c);
  });
  if (plain) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> LoadingLines(const v1::Job& job, const std::string& base,
                                      const std::string& folder) {
  const std::string loader = ClassOf(job.spec().task());
  const std::string trusted = IsReversible(job) ? ", trust_remote_code=True" : "";
  const bool adds = IsAdapter(job) && job.spec().added_tokens_size() > 0;
  const std::string tokenizer = adds ? ", AutoTokenizer" : "";
  std::vector<std::string> lines = {absl::StrCat("from transformers import ", loader, tokenizer)};
  if (!IsAdapter(job)) {
    lines.push_back(
        absl::StrCat("model = ", loader, ".from_pretrained(", PythonText(folder), trusted, ")"));
    return lines;
  }
  lines.push_back("from peft import PeftModel");
  lines.push_back(absl::StrCat("base = ", loader, ".from_pretrained(", PythonText(base),
                               BaseArguments(job.spec()), trusted, ")"));
  if (adds) {
    lines.push_back(
        absl::StrCat("tokenizer = AutoTokenizer.from_pretrained(", PythonText(folder), ")"));
    lines.push_back(
        "base.resize_token_embeddings(max(len(tokenizer), "
        "base.get_input_embeddings().num_embeddings))");
  }
  lines.push_back(
      absl::StrCat("model = PeftModel.from_pretrained(base, ", PythonText(folder), ")"));
  return lines;
}

std::vector<Serving> ServingOf(const v1::Job& job, const std::string& folder) {
  std::vector<Serving> all;
  if (!job.has_output() || job.spec().method() == v1::JobSpec::METHOD_UNSPECIFIED) return all;
  const std::string base = BaseOf(job);
  if (IsAdapter(job) && base == kBase)
    all.push_back({"BASE, what it was trained on",
                   {absl::StrCat("snug download ", job.spec().model(), " ", kBase)}});
  all.push_back({"transformers", LoadingLines(job, base, folder), /*is_python=*/true});
  if (job.spec().task() != v1::JobSpec::TASK_CAUSAL_LM || IsReversible(job)) return all;
  if (!IsAdapter(job))
    AddModel(folder, ServedName(job), all);
  else if (IsMerged(job))
    AddModel(folder + "/merged", ServedName(job), all);
  else
    AddAdapter(job, folder, all);
  return all;
}

std::string InOneLine(const Serving& serving) {
  return absl::StrJoin(serving.lines, serving.is_python ? "; " : " && ");
}

void PrintServing(const std::vector<Serving>& all, std::ostream& out) {
  if (all.empty()) return;
  out << "\nserve it, with any of:\n";
  for (const Serving& serving : all) {
    out << serving.reader << "\n";
    for (const std::string& line : serving.lines) out << "  " << Printable(line) << "\n";
  }
}

}  // namespace snug::client
