import com.google.googlejavaformat.java.Main;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Checks or rewrites the layout of the project's files: Java by google-java-format, other texts by
 * three rules (no tab, no blank at a line's end, one newline at the file's end).
 *
 * <p>It runs on the JDK that compiles the project, whatever Maven itself runs on:
 * google-java-format reads with the running JDK's parser, and 17 can't read our syntax.
 */
final class Format {
  private static final Set<String> SKIPPED = Set.of(".git", "target", "generated", "node_modules");
  private static final Set<String> TEXTS =
      Set.of("md", "sh", "xml", "properties", "yml", "yaml", "c", "h");
  private static final Set<String> SCRIPTS =
      Set.of("nccl4j", "run", "NOTICE", "maven.config", "jvm.config");

  private final Path root;
  private final boolean write;
  private final List<Path> java = new ArrayList<>();
  private final List<Path> texts = new ArrayList<>();

  private Format(Path root, boolean write) {
    this.root = root;
    this.write = write;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 2 || !List.of("check", "write").contains(args[0])) {
      System.err.println("usage: Format check|write ROOT");
      System.exit(2);
    }
    Format format = new Format(Path.of(args[1]), args[0].equals("write"));
    format.collect();
    boolean clean = format.texts() & format.java();
    if (!clean) {
      System.err.println(
          "layout differs in the files above; 'mvn verify -pl config -Dformat=write' fixes it");
      System.exit(1);
    }
  }

  private void collect() throws IOException {
    Files.walkFileTree(
        root,
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult preVisitDirectory(Path dir, BasicFileAttributes attributes) {
            return SKIPPED.contains(dir.getFileName().toString())
                ? FileVisitResult.SKIP_SUBTREE
                : FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
            String name = file.getFileName().toString();
            String ending = name.substring(name.lastIndexOf('.') + 1);
            if (attributes.isRegularFile() && ending.equals("java")) {
              java.add(file);
            } else if (attributes.isRegularFile()
                && (TEXTS.contains(ending) || SCRIPTS.contains(name))) {
              texts.add(file);
            }
            return FileVisitResult.CONTINUE;
          }
        });
  }

  private boolean texts() throws IOException {
    boolean clean = true;
    for (Path file : texts) {
      String now = Files.readString(file);
      String wanted = tidy(now);
      if (now.equals(wanted)) {
        continue;
      }
      if (write) {
        Files.writeString(file, wanted);
      } else {
        System.err.println(file);
        clean = false;
      }
    }
    return clean;
  }

  private static String tidy(String text) {
    String lines =
        text.replace("\r\n", "\n")
            .lines()
            .map(line -> line.replace("\t", "    ").stripTrailing())
            .collect(Collectors.joining("\n"));
    String tail = lines.stripTrailing();
    return tail.isEmpty() ? "" : tail + "\n";
  }

  private boolean java() throws Exception {
    if (java.isEmpty()) {
      return true;
    }
    List<String> mode =
        write ? List.of("--replace") : List.of("--dry-run", "--set-exit-if-changed");
    String[] args =
        Stream.concat(mode.stream(), java.stream().map(Path::toString)).toArray(String[]::new);
    PrintWriter out = new PrintWriter(System.err, true, StandardCharsets.UTF_8);
    return new Main(out, out, System.in).format(args) == 0;
  }
}
