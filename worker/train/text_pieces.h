// Text from the bytes of tokens, as they come: whole characters alone, for a token can end within
// one. Pure.
#ifndef WORKER_TRAIN_TEXT_PIECES_H_
#define WORKER_TRAIN_TEXT_PIECES_H_

#include <string>
#include <string_view>

namespace snug::train {

class TextPieces {
 public:
  // What can be shown once these bytes have come; valid UTF-8. Bytes that begin no character become
  // U+FFFD, as transformers' decode has them: one for each longest beginning of a character.
  std::string Add(std::string_view bytes);
  // What is left at the end: a character that was begun becomes U+FFFD.
  std::string End();

 private:
  std::string held_;  // The beginning of a character.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_TEXT_PIECES_H_
