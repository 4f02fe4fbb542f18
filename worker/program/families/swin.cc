// Swin, of the first version: stages of layers whose attention has windows.
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/program/families/family.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::RealRange kRatios = {1.0 / 64, 64.0};
constexpr JsonFields::Range kWidths = {1, 65'536}, kCounts = {1, 1'024}, kWindows = {1, 64};

// A number for each stage.
std::vector<int64_t> ReadList(JsonFields& fields, const char* name, std::vector<int64_t> absent) {
  const nlohmann::json* given = fields.Find(name);
  if (given == nullptr) return absent;
  std::vector<int64_t> numbers;
  bool good = given->is_array() && !given->empty() && given->size() <= size_t{kMostStages};
  for (size_t i = 0; good && i < given->size(); ++i) {
    const nlohmann::json& number = (*given)[i];
    good = number.is_number_integer() && number >= kCounts.min && number <= kCounts.max;
    if (good) numbers.push_back(number.get<int64_t>());
  }
  if (good) return numbers;
  fields.Refuse(name, absl::StrCat("a list of 1 to ", kMostStages, " numbers of ", kCounts.min,
                                   " to ", kCounts.max));
  return {};
}

void ReadStages(JsonFields& fields, ModelConfig& config) {
  const std::vector<int64_t> depths = ReadList(fields, "depths", {2, 2, 6, 2});
  const std::vector<int64_t> heads = ReadList(fields, "num_heads", {3, 6, 12, 24});
  const int64_t width = fields.Integer("embed_dim", kWidths, 96);
  const double ratio = fields.Real("mlp_ratio", kRatios, 4.0);
  if (depths.empty() || heads.empty() || width == 0 || ratio == 0.0) return;  // Refused already.
  if (heads.size() != depths.size())
    return fields.Refuse("num_heads", absl::StrCat(depths.size(), " numbers, as depths has"));
  const auto mlp_width = static_cast<int64_t>(ratio * static_cast<double>(width));
  if (static_cast<double>(mlp_width) != ratio * static_cast<double>(width))
    return fields.Refuse("mlp_ratio", absl::StrCat("a whole number of times embed_dim = ", width));
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    config.stages.push_back({.layers = depths[stage], .heads = heads[stage]});
    if ((width << stage) % (2 * heads[stage]) != 0)
      fields.Refuse("num_heads",
                    absl::StrCat("such that each head of stage ", stage + 1, ", of ",
                                 width << stage, " / ", heads[stage], ", has an even width"));
  }
  const size_t doublings = depths.size() - 1;
  config.layers = LayersOf(config);
  config.width = width << doublings;
  config.mlp_width = mlp_width << doublings;
  config.heads = config.kv_heads = heads.back();
  config.head_width = config.width / config.heads;
}

void ReadSwin(JsonFields& fields, ModelConfig& config) {
  ReadImageEncoder(fields, config, /*patch_size=*/4);
  ReadStages(fields, config);
  config.vocabulary = 1;  // Every patch has the id 0.
  config.norm_epsilon = fields.Real("layer_norm_eps", {0.0, 1.0}, 1e-5);
  config.drop_path = fields.Real("drop_path_rate", kDropouts, 0.1);
  config.window_side = fields.Integer("window_size", kWindows, 7);
  fields.MustBe("use_absolute_embeddings", false);
  if (config.stages.empty() || config.image_size < 1 || config.patch_size < 1) return;
  config.max_positions = config.tokens_of_image();
  if (config.image_size % config.patch_size != 0) return;  // Refused already.
  if (config.window_side > 0 && !StagesFit(config))
    fields.Refuse("image_size",
                  absl::StrCat("such that each of the ", config.stages.size(),
                               " stages, of half the side of the one before, has whole windows of ",
                               config.window_side, " x ", config.window_side,
                               " patches of patch_size = ", config.patch_size, " pixels"));
}

}  // namespace

const Family kSwin = {.model_type = "swin",
                      .architecture = "SwinForMaskedImageModeling",
                      .classifier = "SwinForImageClassification",
                      .max_positions = 0,
                      .encoder = true,
                      .images = true,
                      .staged = true,
                      .base = "swin",
                      .read = ReadSwin};

}  // namespace snug::program
