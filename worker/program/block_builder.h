// Grows one block type op by op. Knows the operands, shapes and attributes of each op, and nothing
// of any family.
#ifndef WORKER_PROGRAM_BLOCK_BUILDER_H_
#define WORKER_PROGRAM_BLOCK_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/program/lora_targets.h"
#include "worker/program/patch_order.h"
#include "worker/program/program.h"

namespace snug::program {

// A parameter of a block type before it is bound to a layer: the key's end, or the whole key of a
// parameter outside the layers.
struct ParameterSlot {
  std::string key;
  std::vector<int64_t> shape;
  bool adapter = false;
  bool up = false;      // Of an adapter: B, not A.
  bool decay = true;    // Not of norms and biases.
  bool shared = false;  // Of all layers: the key is whole.
  // The key as transformers' class has it, where its files spell it otherwise.
  std::string module_key = {};
};

// A linear module: y = z W^T, with a bias and an adapter where it has them.
struct LinearModule {
  struct Result {
    std::string site;
    int64_t width;
  };
  std::string path;  // "self_attn.q_proj"
  // Several: those that a fused module gives, in the order of its rows.
  std::vector<Result> results;
  bool bias = false;
  std::string file_path = {};  // In the model's files, where these call it otherwise.
};

struct AttentionForm {
  int64_t window = 0;
  bool causal = true;
  // The key of the parameter, which is of all layers or, where attention has windows, of one, in
  // which transformers' class may call it otherwise; empty: none.
  std::string biases = {};
  std::string biases_module = {};
  std::string site = "attention";
  int64_t heads = 0;        // 0: the model's.
  PatchOrder windows = {};  // Of whose parts each sees itself alone, where there are such.
};

// Each method names the values it makes after its site and gives the value's number.
class BlockBuilder {
 public:
  // `adapters` has those of the layers that the type is for.
  BlockBuilder(std::string name, const ModelConfig& config, const TrainingMode& mode,
               Adapters adapters = {});

  int Input(int64_t width, Rows rows = Rows::kTokens, std::string site = "input");
  int FixedInput(int64_t width, std::string site);
  void Output(int value) { type_.outputs.push_back(value); }

  int Embedding(Rows rows = Rows::kTokens);
  // What a table of `rows` rows, the module `path`, says of each token by its number.
  int Table(const std::string& path, int64_t rows, Ids ids, const std::string& site);
  // Patches of images by the module `path`, and in their places the tokens that `tokens` are the
  // keys of.
  int PatchEmbedding(const std::string& path, int64_t width,
                     const std::vector<std::string>& tokens);
  // What the tensor `key` says of each place of an image.
  int Places(const std::string& key, const std::string& site);
  // Over each vector of as many elements as `vectors` says how many there are in a row; `weight` is
  // theirs all.
  int RmsNorm(int x, const std::string& site, const std::string& weight, int64_t vectors = 1);
  // Less the mean, with the weight and the bias of the module `path`; without `epsilon` the
  // model's.
  int LayerNorm(int x, const std::string& site, const std::string& path,
                std::optional<double> epsilon = {});
  // What all modules that read `z` give, in their order.
  std::vector<int> Linears(int z, const std::vector<LinearModule>& modules);
  int Linear(int z, const LinearModule& module) { return Linears(z, {module}).front(); }
  int Rope(int q, int64_t heads, bool local, const std::string& site);
  int Attention(int q, int k, int v, int64_t window);
  int Attention(int q, int k, int v, const AttentionForm& form);
  int Glu(int g, int u);
  int Activated(int x, Activation activation, const std::string& site);
  // x itself where the rate is 0.
  int Dropout(int x, double rate, const std::string& site);
  // Each document as a whole.
  int DropDocuments(int x, double rate, const std::string& site);
  int Add(int x, int f, const std::string& site);
  // Numbers in fixed point, which stay as they are where something is added and taken away again.
  int ToFixed(int x, const std::string& site);
  int FromFixed(int v, const std::string& site);
  int FixedAdd(int v, int f, const std::string& site);
  // Of x the rows that `rows` stands for.
  int SelectRows(int x, Rows rows, const std::string& site);
  // `merged` rows of x that follow one another lie beside one another in one of the result's.
  int MergeRows(int x, int64_t merged, Rows rows, const std::string& site);
  // An image's rows, which lie as `from` says, in another order.
  int ReorderRows(int x, const PatchOrder& from, const PatchOrder& to, const std::string& site);
  // Of each document's rows.
  int MeanRows(int x, const std::string& site);
  void HeadLoss(int z);

  // The type is complete.
  BlockType TakeType();
  const std::vector<ParameterSlot>& slots() const { return slots_; }

 private:
  // `like`: the value whose rows it has.
  int AddValue(std::string site, int64_t width, int like);
  int AddFixed(std::string site, int like);
  int AddCompanion(std::string site, int64_t width, int like);
  int AddRows(Value value);
  int AddSlot(ParameterSlot slot);
  OpAttributes& AddOp(Op op);
  // Where a module's columns of z A^T are.
  struct Down {
    int za = -1;  // None: the module has no adapter.
    int64_t column = 0;
  };
  std::vector<Down> AddLoraDowns(int z, const std::vector<LinearModule>& modules);
  void AddLinear(int z, const LinearModule& module, const Down& down, std::vector<int>& results);

  const ModelConfig& config_;
  const TrainingMode& mode_;
  const Adapters adapters_;
  BlockType type_;
  std::vector<ParameterSlot> slots_;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BLOCK_BUILDER_H_
