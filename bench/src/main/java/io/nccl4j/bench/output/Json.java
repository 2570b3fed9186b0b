package io.nccl4j.bench.output;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Documents made of {@link Fields}, maps, collections, texts, numbers and truth values; null and
 * empty optionals are JSON's null. Jackson's object mapper would take records, but a third of a
 * second to start.
 */
public final class Json {
  private Json() {}

  /** An object: its fields in the order in which they are added. */
  public static final class Fields {
    private final Map<String, @Nullable Object> values = new LinkedHashMap<>();

    /** Adds a field. */
    public Fields with(String name, @Nullable Object value) {
      values.put(name, value);
      return this;
    }

    /** Adds a list: what {@code form} makes of each value. */
    public <T> Fields with(String name, Collection<T> values, Function<? super T, ?> form) {
      return with(name, values.stream().map(form).toList());
    }
  }

  /** A text; null if it is empty. */
  static @Nullable String known(String text) {
    return text.isEmpty() ? null : text;
  }

  /** A number; null if it is negative. */
  static @Nullable Long known(long number) {
    return number < 0 ? null : number;
  }

  /** Writes a document and a line end to a stream, which stays open. */
  public static void print(PrintStream out, Fields document) {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = pretty(new JsonFactory().createGenerator(text))) {
      write(json, document);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    out.println(text);
  }

  /** A generator of documents in the layout that {@link #print} has. */
  static JsonGenerator generator(OutputStream out) throws IOException {
    return pretty(new JsonFactory().createGenerator(out));
  }

  private static JsonGenerator pretty(JsonGenerator json) {
    return json.setPrettyPrinter(new DefaultPrettyPrinter());
  }

  /** Writes a value where the generator is. */
  static void write(JsonGenerator json, @Nullable Object value) throws IOException {
    switch (value) {
      case null -> json.writeNull();
      case String text -> json.writeString(text);
      case Boolean truth -> json.writeBoolean(truth);
      case Integer number -> json.writeNumber(number);
      case Long number -> json.writeNumber(number);
      case Double number -> json.writeNumber(number);
      case OptionalInt number -> write(json, number.isEmpty() ? null : number.getAsInt());
      case OptionalLong number -> write(json, number.isEmpty() ? null : number.getAsLong());
      case OptionalDouble number -> write(json, number.isEmpty() ? null : number.getAsDouble());
      case Fields fields -> write(json, fields.values);
      case Map<?, ?> map -> {
        json.writeStartObject();
        writeFields(json, map);
        json.writeEndObject();
      }
      case Collection<?> values -> {
        json.writeStartArray();
        for (Object each : values) {
          write(json, each);
        }
        json.writeEndArray();
      }
      default -> throw new IllegalArgumentException(value.getClass() + " has no form in JSON");
    }
  }

  /** Writes fields into the object that the generator is in. */
  static void writeFields(JsonGenerator json, Fields fields) throws IOException {
    writeFields(json, fields.values);
  }

  private static void writeFields(JsonGenerator json, Map<?, ?> fields) throws IOException {
    for (Map.Entry<?, ?> field : fields.entrySet()) {
      json.writeFieldName(String.valueOf(field.getKey()));
      write(json, field.getValue());
    }
  }
}
