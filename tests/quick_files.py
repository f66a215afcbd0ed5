"""Local files whose permissions Java itself sets. Hadoop starts a ``chmod`` for that: four times for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = """
public class QuickFiles extends org.apache.hadoop.fs.LocalFileSystem {
    public QuickFiles() { super(new Raw()); }

    public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(
            org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
        ) throws java.io.IOException {
            try {
                java.nio.file.Files.setPosixFilePermissions(
                    pathToFile(path).toPath(),
                    java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString())
                );
            } catch (IllegalArgumentException e) { // a sticky bit, or a name that Java's locale does not have
                super.setPermission(path, permission);
            }
        }
    }
}
"""


def use_quick_files(spark: SparkSession) -> None:
    """Make it the file system of a session's JVM for local files: Hadoop keeps one for all."""
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    assert context is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()  # which Spark compiles its queries with
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    configuration = jvm.org.apache.hadoop.conf.Configuration(context.hadoopConfiguration())
    configuration.setClassLoader(compiler.getClassLoader())
    configuration.set("fs.file.impl", "QuickFiles")
    files = jvm.org.apache.hadoop.fs.FileSystem
    files.closeAll()
    files.get(jvm.java.net.URI("file:///"), configuration)
