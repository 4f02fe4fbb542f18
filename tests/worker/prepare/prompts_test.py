"""snug_prompts.py: ids, and what tokens stand for, against the tokenizers library."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PROGRAM = os.path.join(ROOT, "worker/prepare/snug_prompts.py")
TEXTS = ["the cat sat on the mat", "what is a cat? an animal.", "caf\u00e9 \u4e2d\u6587 \U0001f600"]
SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level():
    """As Llama 3, GPT-2, Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def sentence_piece():
    """As Llama 2, Mistral, Gemma: spaces as U+2581, bytes of what is not in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    parts = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    special = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS[:2], trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][: len(SPECIAL)]
    return Tokenizer.from_str(json.dumps(content))


class PromptsTest(unittest.TestCase):
    """A model folder with each kind of tokenizer."""

    def run_program(self, tokenizer, texts, *options, most=64, config=(), chat_template=None):
        """The finished process and what it wrote."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        size = tokenizer.get_vocab_size()
        files = {
            "config.json": {"vocab_size": size, "eos_token_id": 2, **dict(config)},
            "generation_config.json": {"eos_token_id": [2, 0]},
            "prompts.json": texts,
            "tokenizer_config.json": {"chat_template": chat_template},
        }
        for name, content in files.items():
            with open(os.path.join(folder.name, name), "w", encoding="utf-8") as file:
                json.dump(content, file)
        tokenizer.save(os.path.join(folder.name, "tokenizer.json"))
        output = os.path.join(folder.name, "out.json")
        command = [sys.executable, PROGRAM, "--model", folder.name, "--output", output]
        command += ["--prompts", os.path.join(folder.name, "prompts.json")]
        command += ["--max-tokens", str(most), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        if not os.path.exists(output):
            return done, None
        with open(output, encoding="utf-8") as file:
            return done, json.load(file)

    def pieces(self, content):
        """What each id stands for."""
        spelled, pieces = content["token_bytes"].encode("latin-1"), []
        while spelled:
            length = int.from_bytes(spelled[:2], "big")
            pieces.append(spelled[2 : 2 + length])
            spelled = spelled[2 + length :]
        return pieces

    def test_tokens_put_one_behind_another_are_the_text(self):
        for tokenizer in (byte_level(), sentence_piece()):
            _, content = self.run_program(tokenizer, TEXTS, config={"vocab_size": 500})
            pieces = self.pieces(content)
            self.assertEqual(len(pieces), 500)
            for prompt, text in zip(content["prompts"], TEXTS, strict=True):
                ids = tokenizer.encode(text).ids
                self.assertEqual(prompt, {"text": text, "ids": ids})
                said = b"".join(pieces[i] for i in ids).decode()
                self.assertEqual(said, text)
                self.assertEqual(said, tokenizer.decode(ids))
            self.assertEqual([pieces[i] for i in range(len(SPECIAL))], [b""] * len(SPECIAL))
            self.assertEqual(content["stop_ids"], [0, 2])

    def test_special_tokens_stand_in_front_and_not_behind(self):
        tokenizer = byte_level()
        tokenizer.post_processor = processors.TemplateProcessing(
            "<s> $A </s>", None, [("<s>", 1), ("</s>", 2)]
        )
        _, content = self.run_program(tokenizer, ["the cat"])
        whole = tokenizer.encode("the cat").ids
        self.assertEqual(whole[-1], 2)
        self.assertEqual(content["prompts"][0]["ids"], whole[:-1])

    def test_a_conversation_goes_through_the_template(self):
        tokenizer = byte_level()
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
        template = (
            "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}"
        )
        said = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]
        asked = ["the cat", {"messages": said}]
        _, content = self.run_program(tokenizer, asked, "--chat-template", template)
        text = "[user]the cat</s>[assistant]sat</s>[assistant]"
        plain, chat = content["prompts"]
        self.assertEqual(plain["ids"], tokenizer.encode("the cat").ids)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        self.assertEqual(chat, {"text": text, "ids": ids})
        done, content = self.run_program(tokenizer, asked, "--field", "prompts")
        self.assertEqual((done.returncode, content), (2, None))  # The model has no template.
        self.assertEqual(json.loads(done.stderr.splitlines()[-1])["reason"], "NO_CHAT_TEMPLATE")

    def test_a_text_is_said_by_a_user_where_there_is_a_template(self):
        tokenizer = byte_level()
        template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}[assistant]"
        given = ("--chat-template", template)
        text = "[user]the cat</s>[assistant]"
        said = tokenizer.encode(text, add_special_tokens=False).ids
        plain = tokenizer.encode("the cat").ids
        for options, ids in (
            (("--texts-are-said", *given), said),
            (("--texts-are-said",), plain),  # The model has no template.
            (given, plain),
        ):
            _, content = self.run_program(tokenizer, ["the cat"], *options)
            self.assertEqual(content["prompts"], [{"text": "the cat", "ids": ids}])
        _, content = self.run_program(
            tokenizer, ["the cat"], "--texts-are-said", chat_template=template
        )
        self.assertEqual(content["prompts"], [{"text": "the cat", "ids": said}])
        _, content = self.run_program(
            tokenizer, ["the cat"], "--texts-are-said", *given, config={"model_type": "t5"}
        )
        self.assertEqual(content["prompts"][0]["ids"], plain)
        done, _ = self.run_program(tokenizer, ["the cat"], "--texts-are-said", *given, most=4)
        self.assertIn(f"has {len(said)} tokens", done.stderr)

    def test_a_source_is_whole_and_its_answer_a_text_of_its_own(self):
        words = [("<unk>", 0.0), ("\u2581the", -1.0), ("\u2581", -2.0)]
        tokenizer = Tokenizer(models.Unigram(words, 0, False))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.add_special_tokens(["</s>"])
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", 3)])
        for config, drops in (({"model_type": "t5"}, True), ({}, False)):
            _, content = self.run_program(tokenizer, ["the the"], config=config)
            whole = tokenizer.encode("the the").ids
            self.assertEqual(whole[-1], 3)
            self.assertEqual(content["prompts"][0]["ids"], whole if drops else whole[:-1])
            self.assertEqual(content["drops_space"], drops)
            pieces = self.pieces(content)
            said = b"".join(pieces[i] for i in whole).decode()
            self.assertEqual(said, " " + tokenizer.decode(whole))
        done, _ = self.run_program(tokenizer, ["the the"], most=2, config={"model_type": "t5"})
        self.assertIn("as a source it must fit", done.stderr)
        _, content = self.run_program(byte_level(), ["a"], config={"model_type": "t5"})
        self.assertEqual(content["drops_space"], False)

    def test_a_prompt_that_is_too_long_is_named(self):
        done, content = self.run_program(byte_level(), ["ok", "zzzzzzzz"], most=4)
        self.assertEqual((done.returncode, content), (2, None))
        error = json.loads(done.stderr.splitlines()[-1])
        self.assertEqual(error["reason"], "BAD_SAMPLE_PROMPT")
        self.assertEqual(error["field"], "training.sample_prompts")
        self.assertIn("'zzzzzzzz' has 8 tokens", error["message"])


if __name__ == "__main__":
    unittest.main()
