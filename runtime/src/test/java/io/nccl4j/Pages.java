package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** README.md and docs/*.md: their fenced blocks, and compiling programs that they show. */
final class Pages {
  /** The project's folder. */
  static final Path ROOT = root();

  /** A fenced block: its language and its text. */
  static final Pattern FENCE =
      Pattern.compile("^```(\\w*)\\n(.*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);

  private Pages() {}

  /** One fenced block. */
  record Block(String language, String text) {}

  /** The blocks of a page, in order. */
  static List<Block> blocks(Path page) throws IOException {
    List<Block> blocks = new ArrayList<>();
    Matcher fence = FENCE.matcher(Files.readString(page));
    while (fence.find()) {
      blocks.add(new Block(fence.group(1), fence.group(2)));
    }
    return blocks;
  }

  /** Compiles sources for Java 22 into a folder; every warning is an error. */
  static void compile(Path folder, List<Path> sources, String... options) throws IOException {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assertTrue(compiler != null, "the tests run on a JRE");
    List<String> all = new ArrayList<>(List.of(options));
    // What is said of the other modules' descriptors is not of these sources.
    all.addAll(List.of("--release", "22", "-Xlint:all,-processing,-path,-classfile", "-Werror"));
    all.addAll(List.of("-proc:none", "-d", folder.toString()));
    StringWriter messages = new StringWriter();
    try (StandardJavaFileManager files =
        compiler.getStandardFileManager(null, null, StandardCharsets.UTF_8)) {
      boolean compiled =
          compiler
              .getTask(messages, files, null, all, null, files.getJavaFileObjectsFromPaths(sources))
              .call();
      assertTrue(compiled, messages::toString);
    }
  }

  private static Path root() {
    Path folder = Path.of("").toAbsolutePath();
    while (!Files.exists(folder.resolve("README.md")) || !Files.exists(folder.resolve("nccl4j"))) {
      folder = folder.getParent();
      if (folder == null) {
        throw new UncheckedIOException(new IOException("no README.md above " + Path.of("")));
      }
    }
    return folder;
  }
}
