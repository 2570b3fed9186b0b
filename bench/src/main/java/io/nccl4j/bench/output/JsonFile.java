package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.SystemErrorException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A file with one document, which is written piece by piece. What cannot be written is thrown. */
final class JsonFile implements AutoCloseable {
  private static final int MAX_COLLISIONS = 10_000;

  /** Writes a piece. */
  interface Piece {
    void write(JsonGenerator json) throws IOException;
  }

  private final Path path;
  private final JsonGenerator json;

  private JsonFile(Path path, JsonGenerator json) {
    this.path = path;
    this.json = json;
  }

  /**
   * Creates the file; if it is there already, the first of {@code file.0}, {@code file.1}, … that
   * is not.
   *
   * @throws SystemErrorException if it cannot be created
   */
  static JsonFile create(Path file) {
    Path candidate = file;
    for (int i = 0; i < MAX_COLLISIONS; i++) {
      try {
        return new JsonFile(
            candidate,
            Json.generator(Files.newOutputStream(candidate, StandardOpenOption.CREATE_NEW)));
      } catch (FileAlreadyExistsException taken) {
        candidate = file.resolveSibling(file.getFileName() + "." + i);
      } catch (IOException e) {
        throw failed(candidate, e);
      }
    }
    throw new SystemErrorException(
        file + " and all its numbered alternatives exist", "name another file");
  }

  private static SystemErrorException failed(Path file, IOException cause) {
    return (SystemErrorException)
        new SystemErrorException("cannot write " + file + ": " + cause, "name a writable file")
            .causedBy(cause);
  }

  /** Where it is. */
  Path path() {
    return path;
  }

  /** Whether the document is complete. */
  boolean isComplete() {
    return json.isClosed();
  }

  /** Writes a piece, so that others can read it. */
  void write(Piece piece) {
    try {
      piece.write(json);
      json.flush();
    } catch (IOException e) {
      throw failed(path, e);
    }
  }

  /** Completes the document. */
  @Override
  public void close() {
    try {
      json.close();
    } catch (IOException e) {
      throw failed(path, e);
    }
  }
}
